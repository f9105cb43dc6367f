/* SPDX-License-Identifier: MIT */
/*
 * Which of the loaded libraries are a framework's that caches by itself
 * (shim/framework/frameworks.def), and the lines that say so. Nothing is kept here but what was
 * said.
 */
#pragma once

#include "config/config.h"

enum ca_framework {
#define CA_FRAMEWORK(id, name, take_over) CA_FRAMEWORK_##id,
#include "shim/framework/frameworks.def"
	CA_FRAMEWORKS,
};

struct ca_object;
/* The framework that the library belongs to, or CA_FRAMEWORKS. */
enum ca_framework ca_framework_of_object(const struct ca_object *object);
/*
 * Reads the list of loaded libraries. Returns a bit for each framework that is there and whose
 * cache is on, or that passes by under_framework:pass. Says once of each framework that is there if
 * its cache is off.
 */
unsigned ca_framework_read(const struct ca_config *config);
/* Requests went straight through because of those frameworks (bits): said once of each. */
void ca_framework_report_on(unsigned on);
/* All may be said again. */
void ca_framework_forget_told(void);
