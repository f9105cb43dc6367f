/* SPDX-License-Identifier: MIT */
/*
 * The library's own memory and string functions, under libc's names and hidden.
 *
 * A sanitizer's runtime in the program puts functions of its own under these names, for the whole
 * process. MSan's report what they read unless instrumented code wrote it, and this library's code
 * is not instrumented: its stack frames look as those left them that were there before. TSan's take
 * part in its search for races and do not know what orders two accesses of this library. So no
 * text of the library, and no copy that the compiler makes, may pass through them. The linker binds
 * references from inside to the definitions here; those of other objects do not see them.
 *
 * None is on the way of an allocation that the cache serves, so they are plain. The file is
 * compiled without builtins, or the compiler would make each function a call of itself.
 */
#undef _FORTIFY_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* from glibc 2.43 on these are macros (C23: what is found in a const text is const) */
#undef memchr
#undef strchr
#undef strrchr
#undef strstr

void *
memcpy(void *restrict to, const void *restrict from, size_t n)
{
	const unsigned char *source = from;
	unsigned char *target = to;

	for (; n >= sizeof(uint64_t); n -= sizeof(uint64_t)) {
		uint64_t word;

		__builtin_memcpy(&word, source, sizeof(word));
		__builtin_memcpy(target, &word, sizeof(word));
		source += sizeof(word);
		target += sizeof(word);
	}
	while (n--)
		*target++ = *source++;
	return to;
}

void *
memmove(void *to, const void *from, size_t n)
{
	const unsigned char *source = from;
	unsigned char *target = to;

	/* forwards is right unless the target begins inside the source */
	if ((uintptr_t)target - (uintptr_t)source >= n)
		return memcpy(to, from, n);
	while (n--)
		target[n] = source[n];
	return to;
}

void *
memset(void *to, int byte, size_t n)
{
	uint64_t word = (unsigned char)byte * (UINT64_MAX / 0xff);
	const uint64_t words[4] = { word, word, word, word };
	unsigned char *target = to;

	for (; n >= sizeof(words); n -= sizeof(words)) {
		__builtin_memcpy(target, words, sizeof(words));
		target += sizeof(words);
	}
	for (; n >= sizeof(word); n -= sizeof(word)) {
		__builtin_memcpy(target, &word, sizeof(word));
		target += sizeof(word);
	}
	while (n--)
		*target++ = (unsigned char)byte;
	return to;
}

int
memcmp(const void *a, const void *b, size_t n)
{
	const unsigned char *x = a, *y = b;

	for (; n; n--, x++, y++)
		if (*x != *y)
			return *x - *y;
	return 0;
}

/* clang asks this one where only equality matters */
int
bcmp(const void *a, const void *b, size_t n)
{
	return memcmp(a, b, n);
}

void *
memchr(const void *from, int byte, size_t n)
{
	const unsigned char *at = from;

	for (; n; n--, at++)
		if (*at == (unsigned char)byte)
			return (void *)(uintptr_t)at;
	return NULL;
}

size_t
strnlen(const char *text, size_t max)
{
	size_t n = 0;

	while (n < max && text[n])
		n++;
	return n;
}

size_t
strlen(const char *text)
{
	return strnlen(text, SIZE_MAX);
}

char *
strcpy(char *restrict to, const char *restrict from)
{
	return memcpy(to, from, strlen(from) + 1);
}

int
strncmp(const char *a, const char *b, size_t n)
{
	for (; n; n--, a++, b++)
		if (*a != *b || !*a)
			return (unsigned char)*a - (unsigned char)*b;
	return 0;
}

int
strcmp(const char *a, const char *b)
{
	return strncmp(a, b, SIZE_MAX);
}

char *
strchr(const char *text, int c)
{
	return memchr(text, c, strlen(text) + 1);
}

char *
strrchr(const char *text, int c)
{
	const char *found = NULL;

	for (; *text; text++)
		if (*text == (char)c)
			found = text;
	return (char *)(uintptr_t)((char)c ? found : text);
}

size_t
strcspn(const char *text, const char *reject)
{
	size_t n = 0;

	while (text[n] && !strchr(reject, text[n]))
		n++;
	return n;
}

size_t
strspn(const char *text, const char *accept)
{
	size_t n = 0;

	while (text[n] && strchr(accept, text[n]))
		n++;
	return n;
}

char *
strstr(const char *text, const char *part)
{
	size_t n = strlen(part);

	while (strncmp(text, part, n) != 0)
		if (!*text++)
			return NULL;
	return (char *)(uintptr_t)text;
}

/*
 * A distribution's compiler defines _FORTIFY_SOURCE by itself, and then calls these where it knows
 * the target's size but not how much is copied. `room` is that size.
 */
void *__memcpy_chk(void *restrict to, const void *restrict from, size_t n, size_t room);
void *__memmove_chk(void *to, const void *from, size_t n, size_t room);
void *__memset_chk(void *to, int byte, size_t n, size_t room);
char *__strcpy_chk(char *restrict to, const char *restrict from, size_t room);

void *
__memcpy_chk(void *restrict to, const void *restrict from, size_t n, size_t room)
{
	if (n > room)
		__builtin_trap();
	return memcpy(to, from, n);
}

void *
__memmove_chk(void *to, const void *from, size_t n, size_t room)
{
	if (n > room)
		__builtin_trap();
	return memmove(to, from, n);
}

void *
__memset_chk(void *to, int byte, size_t n, size_t room)
{
	if (n > room)
		__builtin_trap();
	return memset(to, byte, n);
}

char *
__strcpy_chk(char *restrict to, const char *restrict from, size_t room)
{
	if (strlen(from) >= room)
		__builtin_trap();
	return strcpy(to, from);
}
