/* Writes JSON objects from columns, one for each row: the same bytes as the expressions of `formats/kinds/json/writer.py`.
 *
 * Functions that write return the position after what they have written, or NULL for a value that is left to them.
 */
#include "columns.h"
#include "lent.h"
#include "shortest.h"

#include <stddef.h>

/* A field of the object. `prefix`: `{` or `,`, its name in quotes, and a colon; filled up to whole words. */
typedef struct {
    const uint8_t *prefix;
    int32_t prefix_length;
    int32_t kind;
    const struct ArrowArray *column;
} written_field;

enum { VALUE_BYTES_MAX = 32, ESCAPE_BYTES_MAX = 6, WORD_BYTES = 8, DAY_S = 86400 };
/* 0001-01-01 and 9999-12-31 */
enum { DAYS_MIN = -719162, DAYS_MAX = 2932896 };
static const int64_t SECOND_US = 1000000;

enum { LEFT_OVER = -1, NO_MEMORY = 0, WRITTEN = 1 };

/* Of whole words, all of which are written. */
static uint8_t *put_words(uint8_t *at, const uint8_t *words, int32_t length)
{
    for (int32_t place = 0; place < length; place += WORD_BYTES)
        memcpy(at + place, words + place, WORD_BYTES);
    return at + length;
}

static uint8_t *put(uint8_t *at, const void *bytes, int64_t length)
{
    memcpy(at, bytes, (size_t)length);
    return at + length;
}

static int count_digits(uint64_t value)
{
    int count = 1;
    for (; value >= 10000; value /= 10000)
        count += 4;
    return count + (value >= 10) + (value >= 100) + (value >= 1000);
}

/* Writes all digits, padded to a minimum. */
static uint8_t *put_digits(uint8_t *at, uint64_t value, int least)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445"
                                "46474849505152535455565758596061626364656667686970717273747576777879808182838485868788899091"
                                "9293949596979899";
    int count = count_digits(value);
    for (; count < least; least--)
        *at++ = '0';
    uint8_t *end = at + count, *from = end;
    for (; value >= 100; value /= 100)
        memcpy(from -= 2, pairs + value % 100 * 2, 2);
    if (value >= 10)
        memcpy(from - 2, pairs + value * 2, 2);
    else
        from[-1] = (uint8_t)('0' + value);
    return end;
}

static uint8_t *put_integer(uint8_t *at, int64_t value)
{
    if (value < 0)
        *at++ = '-';
    return put_digits(at, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 1);
}

static uint8_t *put_zeros(uint8_t *at, int32_t count)
{
    memset(at, '0', (size_t)count);
    return at + count;
}

/* As Polars does: with a point, or from 1e16 on and below 1e-5 with an exponent. */
static uint8_t *put_decimal(uint8_t *at, decimal value)
{
    uint8_t text[24];
    int32_t count = (int32_t)(put_digits(text, value.digits, 1) - text), ten = value.exponent + count - 1;
    if (ten < -5 || ten >= 16) {
        *at++ = text[0];
        if (count > 1) {
            *at++ = '.';
            at = put(at, text + 1, count - 1);
        }
        at = put(at, ten < 0 ? "e-" : "e+", 2);
        return put_digits(at, (uint64_t)(ten < 0 ? -ten : ten), 1);
    }
    if (value.exponent >= 0)
        return put(put_zeros(put(at, text, count), value.exponent), ".0", 2);
    if (ten < 0)
        return put(put_zeros(put(at, "0.", 2), -ten - 1), text, count);
    at = put(at, text, ten + 1);
    *at++ = '.';
    return put(at, text + ten + 1, count - ten - 1);
}

static uint8_t *put_double(uint8_t *at, const double *value)
{
    uint64_t bits;
    memcpy(&bits, value, sizeof bits);
    if ((bits >> 52 & 0x7ff) == 0x7ff)
        return put(at, "null", 4);
    if (bits >> 63)
        *at++ = '-';
    bits &= INT64_MAX;
    return bits == 0 ? put(at, "0.0", 3) : put_decimal(at, shortest_decimal(bits));
}

static uint8_t *put_escape(uint8_t *at, uint8_t byte)
{
    static const char digits[] = "0123456789abcdef";
    static const char letters[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    *at++ = '\\';
    if (byte == '"' || byte == '\\')
        *at++ = byte;
    else if (byte < sizeof letters && letters[byte] != 0)
        *at++ = (uint8_t)letters[byte];
    else {
        at = put(at, "u00", 3);
        *at++ = (uint8_t)digits[byte >> 4];
        *at++ = (uint8_t)digits[byte & 15];
    }
    return at;
}

static bool is_escaped(uint8_t byte)
{
    return byte < 0x20 || byte == '"' || byte == '\\';
}

/* Whether any of eight bytes is escaped; may be true where none is, next to one that is. */
static bool any_escaped(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101, tops = ones << 7;
    uint64_t quote = word ^ ones * '"', backslash = word ^ ones * '\\';
    return ((((word - ones * 0x20) & ~word) | ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash)) & tops) != 0;
}

/* Eight bytes may be written behind it. */
static uint8_t *put_text(uint8_t *at, const uint8_t *bytes, int32_t length)
{
    *at++ = '"';
    for (int32_t place = 0; place < length; place += WORD_BYTES) {
        int32_t count = length - place < WORD_BYTES ? length - place : WORD_BYTES;
        uint64_t word = 0x0101010101010101 * ' ';
        if (count == WORD_BYTES)
            memcpy(&word, bytes + place, WORD_BYTES);
        else
            memcpy(&word, bytes + place, (size_t)count);
        if (!any_escaped(word)) {
            memcpy(at, &word, WORD_BYTES);
            at += count;
            continue;
        }
        for (int32_t i = place; i < place + count; i++)
            if (is_escaped(bytes[i]))
                at = put_escape(at, bytes[i]);
            else
                *at++ = bytes[i];
    }
    *at++ = '"';
    return at;
}

/* Days since 1970 (Howard Hinnant, "chrono-compatible low-level date algorithms"). */
static uint8_t *put_date(uint8_t *at, int64_t days)
{
    if (days < DAYS_MIN || days > DAYS_MAX)
        return NULL;
    int64_t from = days + 719468, era = from / 146097, day = from % 146097;
    int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    day -= 365 * year + year / 4 - year / 100;
    int64_t month = (5 * day + 2) / 153;
    day -= (153 * month + 2) / 5;
    month += month < 10 ? 3 : -9;
    at = put_digits(at, (uint64_t)(era * 400 + year + (month <= 2)), 4);
    *at++ = '-';
    at = put_digits(at, (uint64_t)month, 2);
    *at++ = '-';
    return put_digits(at, (uint64_t)day + 1, 2);
}

/* Microseconds since 1970. */
static uint8_t *put_moment(uint8_t *at, int64_t micros, bool zoned)
{
    int64_t seconds = micros / SECOND_US - (micros % SECOND_US < 0), days = seconds / DAY_S - (seconds % DAY_S < 0);
    uint64_t fraction = (uint64_t)(micros - seconds * SECOND_US), second = (uint64_t)(seconds - days * DAY_S);
    at = put_date(at, days);
    if (at == NULL)
        return NULL;
    const uint64_t parts[] = {second / 3600, second / 60 % 60, second % 60};
    for (int i = 0; i < 3; i++) {
        *at++ = i == 0 ? 'T' : ':';
        at = put_digits(at, parts[i], 2);
    }
    if (fraction > 0) {
        *at++ = '.';
        at = fraction % 1000 == 0 ? put_digits(at, fraction / 1000, 3) : put_digits(at, fraction, 6);
    }
    if (zoned)
        *at++ = 'Z';
    return at;
}

static uint8_t *put_quoted(uint8_t *at, const struct ArrowArray *column, int64_t row, int32_t kind)
{
    *at++ = '"';
    if (kind == DATE)
        at = put_date(at, ((const int32_t *)lent_values(column, 4))[row]);
    else
        at = put_moment(at, ((const int64_t *)lent_values(column, 8))[row], kind == TIMESTAMP);
    if (at != NULL)
        *at++ = '"';
    return at;
}

static uint8_t *put_value(uint8_t *at, const written_field *one, int64_t row)
{
    int32_t length;
    const struct ArrowArray *column = one->column;
    if (!lent_known(column, row))
        return put(at, "null", 4);
    switch (one->kind) {
    case BOOLEAN:
        return lent_boolean(column, row) ? put(at, "true", 4) : put(at, "false", 5);
    case TINYINT:
        return put_integer(at, ((const int8_t *)lent_values(column, 1))[row]);
    case SMALLINT:
        return put_integer(at, ((const int16_t *)lent_values(column, 2))[row]);
    case INT:
        return put_integer(at, ((const int32_t *)lent_values(column, 4))[row]);
    case BIGINT:
        return put_integer(at, ((const int64_t *)lent_values(column, 8))[row]);
    case DOUBLE:
        return put_double(at, (const double *)lent_values(column, 8) + row);
    case STRING: {
        const uint8_t *bytes = lent_bytes(column, row, &length);
        return put_text(at, bytes, length);
    }
    default:
        return put_quoted(at, column, row, one->kind);
    }
}

/* No fewer bytes than the object of a row has; negative where it may have more than a value of a column. */
static int64_t object_bytes(const written_field *fields, int32_t count, int64_t row, int64_t fixed)
{
    int64_t sum = fixed;
    for (int32_t i = 0; i < count; i++)
        if (fields[i].kind == STRING && lent_known(fields[i].column, row)) {
            int32_t length;
            lent_bytes(fields[i].column, row, &length);
            sum += (int64_t)length * ESCAPE_BYTES_MAX;
            if (length < 0 || sum > TEXT_BYTES_MAX)
                return -1;
        }
    return sum;
}

static int32_t write_rows(const written_field *fields, int32_t count, int64_t rows, int64_t fixed, texts *these, view *views)
{
    for (int64_t row = 0; row < rows; row++) {
        int64_t bytes = object_bytes(fields, count, row, fixed);
        if (bytes < 0)
            return LEFT_OVER;
        if (!texts_reserve(these, bytes))
            return NO_MEMORY;
        uint8_t *at = these->next;
        for (int32_t i = 0; i < count; i++) {
            at = put_words(at, fields[i].prefix, fields[i].prefix_length);
            at = put_value(at, fields + i, row);
            if (at == NULL)
                return LEFT_OVER;
        }
        *at++ = '}';
        texts_commit(these, views + row, (int32_t)(at - these->next));
    }
    return WRITTEN;
}

/* A column of objects; there is at least one field. Returns 0 if memory is missing, -1 for rows that are left over. */
int32_t tg_write_json(const written_field *fields, int32_t count, int64_t rows, struct ArrowArray *array,
                      struct ArrowSchema *schema)
{
    texts these;
    int64_t fixed = 1 + WORD_BYTES;
    for (int32_t i = 0; i < count; i++)
        fixed += fields[i].prefix_length + VALUE_BYTES_MAX;
    arena *owner = arena_new(rows * (fixed + (int64_t)sizeof(view)) + 4096);
    if (owner == NULL)
        return NO_MEMORY;
    texts_begin(&these, owner, rows * fixed, TEXT_BYTES_MAX);
    view *views = arena_take(owner, rows * (int64_t)sizeof(view));
    int32_t result = views == NULL ? NO_MEMORY : write_rows(fields, count, rows, fixed, &these, views);
    if (result != WRITTEN) {
        arena_release(owner);
        return result;
    }
    bool done = arrow_views(array, owner, rows, NULL, 0, views, &these) &&
                arrow_schema(schema, owner, "vz", "value", NULL, 0);
    return arrow_finish(owner, done, array, schema);
}
