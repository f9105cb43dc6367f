/* SPDX-License-Identifier: MIT */
/*
 * A formatter for lines that are written from inside somebody else's program.
 *
 * Every character goes through put(), which counts it and stores it only while there is room: the
 * result is cut, never overrun, and the full length is known at the end, as with snprintf. A
 * conversion is read into a small struct first and printed afterwards, so that padding is done in
 * one place.
 *
 * Writing has two traps that stdio does not solve either. A line to a closed pipe raises SIGPIPE,
 * and a file at its size limit raises SIGXFSZ: both would kill a program that never wrote there
 * itself. Both are sent to the writing thread, so blocking them in this thread, writing, and taking
 * back the one that we caused leaves no trace. And write() is a cancellation point, so the bare
 * system call is used.
 */
#include "config/text.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WIDTH_MAX = 256 };

struct out {
	char *ret;     /* may be NULL when size is 0 */
	size_t size;   /* bytes */
	size_t length; /* characters so far, stored or not */
	va_list args;
};

struct spec {
	bool left;
	bool zero;
	int width;     /* characters */
	int precision; /* characters; -1: none */
	int longs;     /* number of 'l'; 2 also for 'z' */
	char conversion;
};

static void
put(struct out *out, char c)
{
	if (out->length + 1 < out->size)
		out->ret[out->length] = c;
	out->length++;
}

static void
put_times(struct out *out, char c, size_t count)
{
	while (count--)
		put(out, c);
}

static void
put_padded(struct out *out, const struct spec *spec, const char *prefix, const char *text,
	   size_t length)
{
	size_t total = strlen(prefix) + length;
	size_t pad = (size_t)spec->width > total ? (size_t)spec->width - total : 0;

	if (!spec->left && !spec->zero)
		put_times(out, ' ', pad);
	while (*prefix)
		put(out, *prefix++);
	if (!spec->left && spec->zero)
		put_times(out, '0', pad);
	while (length--)
		put(out, *text++);
	if (spec->left)
		put_times(out, ' ', pad);
}

static void
put_number(struct out *out, const struct spec *spec, const char *prefix, uint64_t value,
	   unsigned base)
{
	char digits[24];
	size_t at = sizeof(digits);

	do {
		digits[--at] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	put_padded(out, spec, prefix, digits + at, sizeof(digits) - at);
}

static void
put_signed(struct out *out, const struct spec *spec)
{
	int64_t value;

	if (spec->longs == 2)
		value = va_arg(out->args, long long);
	else if (spec->longs == 1)
		value = va_arg(out->args, long);
	else
		value = va_arg(out->args, int);
	put_number(out, spec, value < 0 ? "-" : "",
		   value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 10);
}

static void
put_unsigned(struct out *out, const struct spec *spec, unsigned base)
{
	uint64_t value;

	if (spec->longs == 2)
		value = va_arg(out->args, unsigned long long);
	else if (spec->longs == 1)
		value = va_arg(out->args, unsigned long);
	else
		value = va_arg(out->args, unsigned int);
	put_number(out, spec, "", value, base);
}

static void
put_string(struct out *out, struct spec *spec)
{
	const char *text = va_arg(out->args, const char *);

	if (!text)
		text = "(null)";
	spec->zero = false;
	put_padded(out, spec, "", text,
		   spec->precision >= 0 ? strnlen(text, (size_t)spec->precision) : strlen(text));
}

static int
spec_number(struct out *out, const char **at)
{
	int value = 0;

	if (**at == '*') {
		(*at)++;
		value = va_arg(out->args, int);
	} else {
		for (; **at >= '0' && **at <= '9'; (*at)++)
			if (value <= WIDTH_MAX)
				value = value * 10 + (**at - '0');
	}
	return value;
}

/* Reads what follows a '%'; returns the place after the conversion. */
static const char *
spec_parse(struct out *out, const char *at, struct spec *ret_spec)
{
	struct spec spec = { .precision = -1 };

	for (; *at == '-' || *at == '0'; at++) {
		spec.left |= *at == '-';
		spec.zero |= *at == '0';
	}
	spec.width = spec_number(out, &at);
	if (spec.width < 0) {
		spec.left = true;
		spec.width = spec.width < -WIDTH_MAX ? WIDTH_MAX : -spec.width;
	}
	if (spec.width > WIDTH_MAX)
		spec.width = WIDTH_MAX;
	if (*at == '.') {
		at++;
		spec.precision = spec_number(out, &at);
	}
	for (; *at == 'l'; at++)
		spec.longs++;
	if (*at == 'z') {
		spec.longs = sizeof(size_t) == sizeof(long) ? 1 : 0;
		at++;
	}
	spec.conversion = *at;
	*ret_spec = spec;
	return *at ? at + 1 : at;
}

static bool
put_conversion(struct out *out, struct spec *spec)
{
	char c;

	switch (spec->conversion) {
	case '%':
		put(out, '%');
		return true;
	case 'c':
		c = (char)va_arg(out->args, int);
		spec->zero = false;
		put_padded(out, spec, "", &c, 1);
		return true;
	case 's':
		put_string(out, spec);
		return true;
	case 'd':
	case 'i':
		put_signed(out, spec);
		return true;
	case 'u':
		put_unsigned(out, spec, 10);
		return true;
	case 'x':
		put_unsigned(out, spec, 16);
		return true;
	case 'p':
		put_number(out, spec, "0x", (uintptr_t)va_arg(out->args, void *), 16);
		return true;
	default:
		return false;
	}
}

size_t
ca_text_vformat(char *ret, size_t size, const char *format, va_list args)
{
	struct out out = { .ret = ret, .size = size };
	const char *at = format;

	va_copy(out.args, args);
	while (*at) {
		const char *start = at;
		struct spec spec;

		if (*at != '%') {
			put(&out, *at++);
			continue;
		}
		at = spec_parse(&out, at + 1, &spec);
		if (!put_conversion(&out, &spec)) {
			/* the arguments no longer match the text */
			while (*start)
				put(&out, *start++);
			break;
		}
	}
	va_end(out.args);
	if (size)
		ret[out.length < size ? out.length : size - 1] = '\0';
	return out.length;
}

size_t
ca_text_format(char *ret, size_t size, const char *format, ...)
{
	va_list args;
	size_t length;

	va_start(args, format);
	length = ca_text_vformat(ret, size, format, args);
	va_end(args);
	return length;
}

char *
ca_text_bytes(char ret[CA_TEXT_SIZE_MAX], uint64_t bytes)
{
	static const char units[][4] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	unsigned unit = 0, hundredths = 0;
	uint64_t whole = bytes;

	while (unit + 1 < sizeof(units) / sizeof(units[0]) && bytes >> (10 * (unit + 1)))
		unit++;
	if (unit) {
		whole = bytes >> (10 * unit);
		hundredths = (unsigned)((((bytes >> (10 * (unit - 1))) & 1023) * 100 + 512) >> 10);
		if (hundredths == 100) {
			hundredths = 0;
			whole++;
		}
		if (whole == 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
			whole = 1;
			unit++;
		}
		ca_text_format(ret, CA_TEXT_SIZE_MAX, "%llu.%02u %s", (unsigned long long)whole,
			       hundredths, units[unit]);
	} else {
		ca_text_format(ret, CA_TEXT_SIZE_MAX, "%llu B", (unsigned long long)whole);
	}
	return ret;
}

char *
ca_text_escape(char *ret, size_t size, const char *text)
{
	size_t length = 0;
	char shown[8];

	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		size_t n;

		if (c >= 0x20 && c < 0x7f)
			n = ca_text_format(shown, sizeof(shown), "%c", c);
		else
			n = ca_text_format(shown, sizeof(shown), "\\x%02x", c);
		/* room for this one and, if it is not the last, for the dots */
		if (length + n + (text[1] ? 3 : 0) >= size) {
			memcpy(ret + length, "...", 3);
			length += 3;
			break;
		}
		memcpy(ret + length, shown, n);
		length += n;
	}
	ret[length] = '\0';
	return ret;
}

static long
write_all(int fd, const char *text, size_t length)
{
	while (length) {
		long done = syscall(SYS_write, fd, text, length);

		if (done < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (!done)
			return -EIO;
		text += done;
		length -= (size_t)done;
	}
	return 0;
}

int
ca_text_write(int fd, const char *text, size_t length)
{
	static const struct timespec now = { 0 };
	int saved = errno;
	sigset_t ours, before, pending;
	long result;

	sigemptyset(&ours);
	sigaddset(&ours, SIGPIPE);
	sigaddset(&ours, SIGXFSZ);
	sigpending(&pending);
	/* sigprocmask acts on this thread on Linux; pthread_sigmask would need a glibc of 2.32 */
	sigprocmask(SIG_BLOCK, &ours, &before);
	result = write_all(fd, text, length);
	if (result == -EPIPE || result == -EFBIG) {
		int number = result == -EPIPE ? SIGPIPE : SIGXFSZ;

		sigemptyset(&ours);
		sigaddset(&ours, number);
		/* one that was pending before is the program's own */
		if (!sigismember(&pending, number))
			while (sigtimedwait(&ours, NULL, &now) < 0 && errno == EINTR)
				;
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	errno = saved;
	return (int)result;
}
