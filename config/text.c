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
 * back the one that we caused leaves no trace. And write() and sigtimedwait() are cancellation
 * points, so the bare system calls are used.
 */
#include "config/text.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WIDTH_MAX = 256, SIGNALS_BYTES = 8 /* of a set, to the kernel */ };

_Static_assert(sizeof(long) == sizeof(long long) && sizeof(long) == sizeof(size_t),
	       "one length for l, ll and z");

struct out {
	char *ret;     /* may be NULL when size is 0 */
	size_t size;   /* bytes */
	size_t length; /* characters so far, stored or not */
};

/* One conversion, with its argument once that was taken. */
struct spec {
	bool left;
	bool zero;
	bool longs;              /* l, ll or z */
	bool width_argument;     /* the width is an argument */
	bool precision_argument; /* the precision is an argument */
	int width;               /* characters */
	int precision;           /* characters; negative: none */
	char conversion;
	uint64_t value;   /* of %c %d %i %u %x %p; signed ones in two's complement */
	const char *text; /* of %s */
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
	bool negative = spec->value >> 63;

	put_number(out, spec, negative ? "-" : "", negative ? 0 - spec->value : spec->value, 10);
}

static void
put_text(struct out *out, const struct spec *spec)
{
	const char *text = spec->text ? spec->text : "(null)";

	put_padded(out, spec, "", text,
		   spec->precision >= 0 ? strnlen(text, (size_t)spec->precision) : strlen(text));
}

static void
width_set(struct spec *spec, int width)
{
	if (width < 0)
		spec->left = true;
	if (width > WIDTH_MAX || width < -WIDTH_MAX)
		width = WIDTH_MAX;
	spec->width = width < 0 ? -width : width;
}

/* Digits or a star. */
static const char *
format_number(const char *at, int *ret_value, bool *ret_star)
{
	int value = 0;

	*ret_star = *at == '*';
	if (*ret_star)
		at++;
	for (; *at >= '0' && *at <= '9'; at++)
		if (value <= WIDTH_MAX)
			value = value * 10 + (*at - '0');
	*ret_value = value;
	return at;
}

/* Reads what follows a '%'; returns the place after the conversion. */
static const char *
format_parse(const char *at, struct spec *ret_spec)
{
	struct spec spec = { .precision = -1 };
	int width;

	for (; *at == '-' || *at == '0'; at++) {
		spec.left |= *at == '-';
		spec.zero |= *at == '0';
	}
	at = format_number(at, &width, &spec.width_argument);
	width_set(&spec, width);
	if (*at == '.')
		at = format_number(at + 1, &spec.precision, &spec.precision_argument);
	for (; *at == 'l' || *at == 'z'; at++)
		spec.longs = true;
	spec.conversion = *at;
	*ret_spec = spec;
	return *at ? at + 1 : at;
}

static bool
is_one_of(char c, const char *set)
{
	return c && strchr(set, c);
}

/* False: unknown conversion. */
static bool
put_conversion(struct out *out, struct spec *spec)
{
	char c = (char)spec->value;

	switch (spec->conversion) {
	case '%':
		put(out, '%');
		return true;
	case 'c':
		spec->zero = false;
		put_padded(out, spec, "", &c, 1);
		return true;
	case 's':
		spec->zero = false;
		put_text(out, spec);
		return true;
	case 'd':
	case 'i':
		put_signed(out, spec);
		return true;
	case 'u':
		put_number(out, spec, "", spec->value, 10);
		return true;
	case 'x':
	case 'p':
		put_number(out, spec, spec->conversion == 'p' ? "0x" : "", spec->value, 16);
		return true;
	default:
		return false;
	}
}

size_t
ca_text_format_va(char *ret, size_t size, const char *format, va_list args)
{
	struct out out = { .ret = ret, .size = size };
	const char *at = format;

	while (*at) {
		const char *start = at;
		struct spec spec;

		if (*at != '%') {
			put(&out, *at++);
			continue;
		}
		at = format_parse(at + 1, &spec);
		/* arguments are taken here only:
		 * a va_list cannot be handed on and come back on all ABIs */
		if (spec.width_argument)
			width_set(&spec, va_arg(args, int));
		if (spec.precision_argument)
			spec.precision = va_arg(args, int);
		if (spec.conversion == 's')
			spec.text = va_arg(args, const char *);
		else if (spec.conversion == 'p')
			spec.value = (uintptr_t)va_arg(args, void *);
		else if (spec.longs && is_one_of(spec.conversion, "diux"))
			spec.value = va_arg(args, unsigned long);
		else if (is_one_of(spec.conversion, "dic"))
			spec.value = (uint64_t)(int64_t)va_arg(args, int);
		else if (is_one_of(spec.conversion, "ux"))
			spec.value = va_arg(args, unsigned int);
		if (!put_conversion(&out, &spec)) {
			/* from here on the arguments may not match the text */
			while (*start)
				put(&out, *start++);
			break;
		}
	}
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
	length = ca_text_format_va(ret, size, format, args);
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

static bool
is_printable(char c)
{
	return c >= 0x20 && c < 0x7f;
}

/* True if `text`, escaped and terminated, needs at most `size` bytes. */
static bool
escape_fits(const char *text, size_t size)
{
	size_t length = 0;

	for (; *text && length < size; text++)
		length += is_printable(*text) ? 1 : 4;
	return length < size;
}

char *
ca_text_escape(char *ret, size_t size, const char *text)
{
	size_t room = escape_fits(text, size) ? size : size - 3; /* for the dots */
	size_t length = 0;

	for (; *text; text++) {
		size_t n = is_printable(*text) ? 1 : 4;

		if (length + n >= room)
			break;
		ca_text_format(ret + length, room - length, n == 1 ? "%c" : "\\x%02x",
			       (unsigned char)*text);
		length += n;
	}
	memcpy(ret + length, *text ? "..." : "", *text ? 4 : 1);
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
			while (syscall(SYS_rt_sigtimedwait, &ours, NULL, &now, SIGNALS_BYTES) < 0 &&
			       errno == EINTR)
				;
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	errno = saved;
	return (int)result;
}
