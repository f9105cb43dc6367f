/* SPDX-License-Identifier: MIT */
/* config/parse.c: values are read whole or refused, and the grammar of CACHEALLOC_CONF. */
#include "config/parse.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/config/check.h"

static void
test_number(void **state)
{
	static const char *const refused[] = { "",
					       " 1",
					       "1 ",
					       "+1",
					       "-1",
					       "1x",
					       "0x1",
					       "1.0",
					       "1e3",
					       "abc",
					       "101",
					       "18446744073709551616",
					       "99999999999999999999999999",
					       "1\n",
					       "\xd9\xa1" };
	uint64_t value = 7;

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		assert_false(ca_parse_number(refused[i], 0, 100, &value));
		assert_int_equal(value, 7);
	}
	assert_false(ca_parse_number("9", 10, 100, &value));
	assert_true(ca_parse_number("10", 10, 100, &value) && value == 10);
	assert_true(ca_parse_number("0100", 10, 100, &value) && value == 100);
	assert_true(ca_parse_number("18446744073709551615", 0, UINT64_MAX, &value));
	assert_true(value == UINT64_MAX);
}

static void
test_words(void **state)
{
	static const char *const yes[] = { "1", "on", "true", "True", "yes", "TRUE" };
	static const char *const no[] = { "0", "off", "false", "False", "no", "OFF" };
	static const char *const refused[] = { "", "2", "y", "tru", "truee", "enable", " 1", "01" };
	enum ca_disable disable = CA_DISABLE_OFF;
	enum ca_log_level level;
	bool flag = false;

	for (size_t i = 0; i < 6; i++) {
		assert_true(ca_parse_flag(yes[i], &flag) && flag);
		assert_true(ca_parse_disable(yes[i], &disable) && disable == CA_DISABLE_ALL);
		assert_true(ca_parse_flag(no[i], &flag) && !flag);
		assert_true(ca_parse_disable(no[i], &disable) && disable == CA_DISABLE_OFF);
	}
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		assert_false(ca_parse_flag(refused[i], &flag));
		assert_false(ca_parse_disable(refused[i], &disable));
		assert_false(ca_parse_level(refused[i], &level));
	}
	assert_true(ca_parse_disable("count", &disable) && disable == CA_DISABLE_COUNT);
	assert_true(ca_parse_level("off", &level) && level == CA_LOG_OFF);
	assert_true(ca_parse_level("error", &level) && level == CA_LOG_ERROR);
	assert_true(ca_parse_level("warn", &level) && level == CA_LOG_WARN);
	assert_true(ca_parse_level("INFO", &level) && level == CA_LOG_INFO);
	assert_true(ca_parse_level("debug", &level) && level == CA_LOG_DEBUG);
	assert_false(ca_parse_level("warning", &level));
}

static void
test_duration(void **state)
{
	static const char *const refused[] = { "",
					       "10",
					       "s",
					       "10 s",
					       "1.5s",
					       "-1s",
					       "9ms",
					       "25h",
					       "10sec",
					       "10us",
					       "10ns",
					       "1d",
					       "18446744073709551615h" };
	const uint64_t ms = 1000000, min = 10 * ms, max = 86400000 * ms;
	uint64_t value = 7;

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		assert_false(ca_parse_duration(refused[i], min, max, &value));
	assert_int_equal(value, 7);
	assert_true(ca_parse_duration("500ms", min, max, &value) && value == 500 * ms);
	assert_true(ca_parse_duration("10s", min, max, &value) && value == 10000 * ms);
	assert_true(ca_parse_duration("2m", min, max, &value) && value == 120000 * ms);
	assert_true(ca_parse_duration("24h", min, max, &value) && value == max);
	assert_true(ca_parse_duration("10ms", min, max, &value) && value == min);
	assert_true(ca_parse_duration("0", min, max, &value) && value == 0);
}

static void
test_word(void **state)
{
	static const char accepted[] = "auto, pass or cache";
	unsigned place = 9;
	char word[8];

	assert_true(ca_parse_word("auto", accepted, &place) && place == 0);
	assert_true(ca_parse_word("Pass", accepted, &place) && place == 1);
	assert_true(ca_parse_word("cache", accepted, &place) && place == 2);
	place = 9;
	assert_false(ca_parse_word("or", accepted, &place));
	assert_false(ca_parse_word("", accepted, &place));
	assert_false(ca_parse_word("pass,", accepted, &place));
	assert_false(ca_parse_word("cac", accepted, &place));
	assert_int_equal(place, 9);
	assert_int_equal(ca_parse_word_at(accepted, 2, word, sizeof(word)), 5);
	assert_string_equal(word, "cache");
	assert_int_equal(ca_parse_word_at(accepted, 3, word, sizeof(word)), 0);
}

static void
test_size(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "0", 0 },
		{ "1", 1 },
		{ "4096", 4096 },
		{ "64K", 64 << 10 },
		{ "64kib", 64 << 10 },
		{ "2M", 2 << 20 },
		{ "2MB", 2 << 20 },
		{ "3GiB", (uint64_t)3 << 30 },
		{ "1T", (uint64_t)1 << 40 },
		{ "18446744073709551615", UINT64_MAX },
	};
	static const char *const bad[] = { "",    "K",  "-1",        "1.5M",
					   "1 M", "1X", "1Ki",       "0x1",
					   "1MM", "M1", "1E",        "unlimited",
					   "1iB", "B",  "16777216T", "18446744073709551616" };
	uint64_t value = 7;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_true(ca_parse_size(good[i].text, 0, UINT64_MAX, &value));
		assert_true(value == good[i].bytes);
	}
	value = 7;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(ca_parse_size(bad[i], 0, UINT64_MAX, &value));
	assert_false(ca_parse_size("2K", 0, 2047, &value));
	assert_false(ca_parse_size("2K", 2049, UINT64_MAX, &value));
	assert_int_equal(value, 7);
	assert_true(ca_parse_size("2K", 2048, 2048, &value));
	assert_true(ca_parse_size_no_limit("Unlimited", 0, 5, &value) && value == UINT64_MAX);
	assert_false(ca_parse_size_no_limit("6", 0, 5, &value));
}

static void
test_mb(void **state)
{
	uint64_t value = 7;

	assert_true(ca_parse_mb("20", 0, UINT64_MAX, &value) && value == (uint64_t)20 << 20);
	assert_true(ca_parse_mb("17592186044415", 0, UINT64_MAX, &value));
	assert_true(value == 17592186044415u << 20);
	value = 7;
	assert_false(ca_parse_mb("17592186044416", 0, UINT64_MAX, &value));
	assert_false(ca_parse_mb("unlimited", 0, UINT64_MAX, &value));
	assert_int_equal(value, 7);
	assert_true(ca_parse_mb_no_limit("unlimited", 0, 5, &value) && value == UINT64_MAX);
	assert_false(ca_parse_mb_no_limit("6", 0, 5, &value));
}

static void
expect(const char **text, const char *key, const char *value, enum ca_conf_fault fault)
{
	struct ca_conf_entry entry;

	assert_true(ca_conf_next(text, &entry));
	assert_string_equal(entry.key, key);
	assert_string_equal(entry.value, value);
	assert_int_equal(entry.fault, fault);
}

static void
expect_end(const char **text)
{
	struct ca_conf_entry entry;

	assert_false(ca_conf_next(text, &entry));
	assert_false(ca_conf_next(text, &entry));
}

static void
test_entries(void **state)
{
	const char *text = " a : 1 , b c:[1:2, 3:4] ,d:x:y,";

	expect(&text, "a", "1", CA_CONF_GOOD);
	expect(&text, "bc", "[1:2,3:4]", CA_CONF_GOOD);
	expect(&text, "d", "x:y", CA_CONF_GOOD);
	expect_end(&text);
	text = "";
	expect_end(&text);
	text = " \t\n";
	expect_end(&text);
	text = "a:[[1,2],[3,4]],b:1";
	expect(&text, "a", "[[1,2],[3,4]]", CA_CONF_GOOD);
	expect(&text, "b", "1", CA_CONF_GOOD);
	expect_end(&text);
	text = "a:1],b:2";
	expect(&text, "a", "1]", CA_CONF_GOOD);
	expect(&text, "b", "2", CA_CONF_GOOD);
	expect_end(&text);
}

static void
test_faults(void **state)
{
	const char *text = ",a,:1,b:,,[1,2],c: ";

	expect(&text, "", "", CA_CONF_EMPTY);
	expect(&text, "a", "", CA_CONF_NO_COLON);
	expect(&text, "", "1", CA_CONF_NO_KEY);
	expect(&text, "b", "", CA_CONF_NO_VALUE);
	expect(&text, "", "", CA_CONF_EMPTY);
	expect(&text, "[1,2]", "", CA_CONF_NO_COLON);
	expect(&text, "c", "", CA_CONF_NO_VALUE);
	expect_end(&text);
}

/* A list that is never closed ends where the next known key begins. */
static void
test_unclosed(void **state)
{
	const char *text = "zero:[1,2:3,4, reuse_slack_mb : 5,max_size:[7";

	expect(&text, "zero", "[1,2:3,4", CA_CONF_UNCLOSED);
	expect(&text, "reuse_slack_mb", "5", CA_CONF_GOOD);
	expect(&text, "max_size", "[7", CA_CONF_UNCLOSED);
	expect_end(&text);
}

static void
test_long(void **state)
{
	char long_text[CA_CONF_VALUE_MAX * 2 + 8];
	const char *text = long_text;
	struct ca_conf_entry entry;

	memset(long_text, '1', sizeof(long_text));
	memcpy(long_text, "a:", 2);
	long_text[sizeof(long_text) - 1] = '\0';
	assert_true(ca_conf_next(&text, &entry));
	assert_int_equal(entry.fault, CA_CONF_TOO_LONG);
	assert_int_equal(strlen(entry.value), CA_CONF_VALUE_MAX - 1);
	expect_end(&text);
	memset(long_text, 'k', CA_CONF_VALUE_MAX);
	memcpy(long_text + CA_CONF_VALUE_MAX, ":1", 3);
	text = long_text;
	assert_true(ca_conf_next(&text, &entry));
	assert_int_equal(strlen(entry.key), CA_CONF_KEY_MAX - 1);
	assert_string_equal(entry.value, "1");
	expect_end(&text);
}

/* Any text comes to an end, each entry advances, and the copies are terminated. */
static void
test_random(void **state)
{
	static const char letters[] = "::,,[[]] \t01a_\n\x80=";
	uint64_t seed = check_seed("parse");

	for (int round = 0; round < 20000; round++) {
		size_t length = check_random(&seed) % 400;
		char *buffer =
			malloc(length + 1); /* exact, so that a sanitizer sees one byte too far */
		const char *text = buffer, *last = NULL;
		struct ca_conf_entry entry;

		for (size_t i = 0; i < length; i++)
			buffer[i] = letters[check_random(&seed) % (sizeof(letters) - 1)];
		buffer[length] = '\0';
		while (ca_conf_next(&text, &entry)) {
			assert_true(text != last && text <= buffer + length);
			last = text;
			assert_true(strlen(entry.key) < sizeof(entry.key));
			assert_true(strlen(entry.value) < sizeof(entry.value));
			assert_null(strpbrk(entry.value, " \t\n"));
		}
		assert_int_equal(text[strspn(text, " \t\n")], '\0');
		free(buffer);
	}
}

static void
test_fraction(void **state)
{
	static const char *const refused[] = {
		"",      ".5",   "1.",           "-0.5",
		"0,5",   "5e-1", "0.5 ",         " 1",
		"nan",   "50%",  "0.1234567891", "1.1",
		"2",     "0",    "0.0",          "99999999999999999999",
		"0.5.5", "1/2"
	};
	uint64_t value = 7;

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		assert_false(ca_parse_fraction(refused[i], 1, CA_WHOLE, &value));
		assert_int_equal(value, 7);
	}
	assert_true(ca_parse_fraction("0.5", 1, CA_WHOLE, &value) && value == CA_WHOLE / 2);
	assert_true(ca_parse_fraction("1", 1, CA_WHOLE, &value) && value == CA_WHOLE);
	assert_true(ca_parse_fraction("1.000000000", 1, CA_WHOLE, &value) && value == CA_WHOLE);
	assert_true(ca_parse_fraction("0.000000001", 1, CA_WHOLE, &value) && value == 1);
	assert_false(ca_parse_fraction("1", 1, CA_WHOLE - 1, &value));
}

static void
test_limit(void **state)
{
	static const char *const refused[] = { "",
					       "0",
					       "0G",
					       "G",
					       "8 G",
					       "8X",
					       "-1G",
					       "1.5",
					       "8GG",
					       "8Gbit",
					       "0%",
					       "101%",
					       "100.1%",
					       "%",
					       "8G%",
					       "1e9",
					       "99999999999T",
					       "18446744073709551616",
					       "0.0000000001%" };
	struct ca_limit limit = { .bytes = 7 };

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		assert_false(ca_parse_limit(refused[i], &limit));
		assert_int_equal(limit.bytes, 7);
	}
	assert_true(ca_parse_limit("8G", &limit) && limit.bytes == UINT64_C(8) << 30);
	assert_true(ca_parse_limit("8g", &limit) && limit.bytes == UINT64_C(8) << 30);
	assert_true(ca_parse_limit("1.5GiB", &limit) && limit.bytes == UINT64_C(3) << 29);
	assert_true(ca_parse_limit("1.5gib", &limit) && limit.bytes == UINT64_C(3) << 29);
	assert_true(ca_parse_limit("512MB", &limit) && limit.bytes == UINT64_C(512) << 20);
	assert_true(ca_parse_limit("1000", &limit) && limit.bytes == 1000 && !limit.share);
	assert_true(ca_parse_limit("90%", &limit) && limit.share == 900000000 && !limit.bytes);
	assert_true(ca_parse_limit("100%", &limit) && limit.share == CA_WHOLE);
	assert_true(ca_parse_limit("62.5%", &limit) && limit.share == 625000000);
}

static void
test_list_of_words(void **state)
{
	static const char accepted[] = "off, or a list of one, two, three";
	static const char *const refused[] = { "",  ",",       "one,",    ",one", "on",
					       "1", "one two", "off,one", "list", "one,,two" };
	unsigned bits = 77;

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		assert_false(ca_parse_words(refused[i], accepted, &bits));
		assert_int_equal(bits, 77);
	}
	assert_true(ca_parse_words("off", accepted, &bits) && bits == 0);
	assert_true(ca_parse_words("two", accepted, &bits) && bits == 2);
	assert_true(ca_parse_words(" Thr ee ,one , THREE", accepted, &bits) && bits == 5);
}

static void
test_roundup(void **state)
{
	static const struct {
		const char *text, *fault;
	} refused[] = {
		{ "3", " (no power of two)" },
		{ "-1", " (no number, and no list)" },
		{ "x", " (no number, and no list)" },
		{ "2097152", " (no number, and no list)" },
		{ "[", " (a [ without ])" },
		{ "[256:1", " (a [ without ])" },
		{ "[]", " (an entry that is not MiB:divisions)" },
		{ "[256]", " (an entry that is not MiB:divisions)" },
		{ "[256:1,]", " (an entry that is not MiB:divisions)" },
		{ "[256:1]x]", " (an entry that is not MiB:divisions)" },
		{ "[256:3]", " (divisions that are no power of two)" },
		{ "[256:]", " (divisions that are no number)" },
		{ "[256:a]", " (divisions that are no number)" },
		{ "[100:1]", " (a size that is no power of two)" },
		{ "[0:1]", " (a size that is no power of two)" },
		{ "[512:1,256:2]", " (the sizes do not ascend, > last)" },
		{ "[256:1,256:2]", " (the sizes do not ascend, > last)" },
		{ "[>:1,256:2]", " (the sizes do not ascend, > last)" },
		{ "[1:1,2:1,4:1,8:1,16:1,32:1,64:1,128:1,256:1,512:1,1024:1,2048:1,4096:1,8192:1,"
		  "16384:1,32768:1,65536:1,131072:1,262144:1,524288:1,1048576:1]",
		  " (too many entries)" },
	};
	struct ca_roundup roundup = { .count = 7 };

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		const char *fault = ca_parse_roundup(refused[i].text, &roundup);

		assert_non_null(fault);
		assert_string_equal(fault, refused[i].fault);
		assert_int_equal(roundup.count, 7);
	}
	assert_null(ca_parse_roundup("0", &roundup));
	assert_int_equal(roundup.count, 0);
	assert_null(ca_parse_roundup("1", &roundup));
	assert_int_equal(roundup.count, 0);
	assert_null(ca_parse_roundup("8", &roundup));
	assert_int_equal(roundup.count, 1);
	assert_true(roundup.interval[0].below == UINT64_MAX && roundup.interval[0].divisions == 8);
	assert_null(ca_parse_roundup("[256:1,512:2,1024:4,>:8]", &roundup));
	assert_int_equal(roundup.count, 4);
	assert_true(roundup.interval[1].below == UINT64_C(512) << 20);
	assert_int_equal(roundup.interval[1].divisions, 2);
	assert_true(roundup.interval[3].below == UINT64_MAX);
	assert_null(ca_parse_roundup("[1:0]", &roundup));
	assert_int_equal(roundup.count, 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_number),        cmocka_unit_test(test_words),
		cmocka_unit_test(test_duration),      cmocka_unit_test(test_mb),
		cmocka_unit_test(test_word),          cmocka_unit_test(test_size),
		cmocka_unit_test(test_entries),       cmocka_unit_test(test_faults),
		cmocka_unit_test(test_unclosed),      cmocka_unit_test(test_long),
		cmocka_unit_test(test_random),        cmocka_unit_test(test_fraction),
		cmocka_unit_test(test_limit),         cmocka_unit_test(test_roundup),
		cmocka_unit_test(test_list_of_words),
	};

	return cmocka_run_group_tests_name("parse", tests, NULL, NULL);
}
