/* SPDX-License-Identifier: MIT */
/* The one thing that differs between the library and that of the tests (-Dsite_conf=). */
#include "shim/process/site_conf.h"

const char ca_site_path[] = CA_SITE_CONF;
