/* SPDX-License-Identifier: MIT */
#include "tests/bench/arguments.h"

#include <getopt.h>
#include <stdlib.h>

static void
store(const struct argument *argument, const char *value)
{
	if (argument->number)
		*argument->number = strtoul(value, NULL, 10);
	else if (argument->integer)
		*argument->integer = (int)strtol(value, NULL, 10);
	else
		*argument->text = value;
}

bool
arguments_read(int argc, char **argv, const struct argument *list, const char **ret_operand)
{
	struct option options[ARGUMENTS_MAX + 1] = { 0 };
	int answer, which = 0;

	for (int i = 0; i < ARGUMENTS_MAX && list[i].name; i++)
		options[i] = (struct option){ list[i].name, required_argument, NULL, 0 };
	while ((answer = getopt_long(argc, argv, "", options, &which)) != -1) {
		if (answer || !optarg)
			return false;
		store(&list[which], optarg);
	}
	*ret_operand = optind + 1 == argc ? argv[optind] : "";
	return true;
}
