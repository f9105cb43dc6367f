/* SPDX-License-Identifier: MIT */
#include "shim/state/process.h"

__thread struct ca_quick ca_quick __attribute__((tls_model("initial-exec")));

struct ca_process *_Atomic ca_process_record;
