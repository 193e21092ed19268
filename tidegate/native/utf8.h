/* Characters outside ASCII, as the Unicode standard has them in UTF-8. */
#ifndef TIDEGATE_UTF8_H
#define TIDEGATE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

#pragma GCC visibility push(hidden)

/* After the characters outside ASCII that begin here; NULL if one of them is invalid. */
const uint8_t *utf8_end(const uint8_t *at, const uint8_t *end);

/* Whether all of these bytes are characters. */
bool is_utf8(const uint8_t *at, const uint8_t *end);

#pragma GCC visibility pop

#endif
