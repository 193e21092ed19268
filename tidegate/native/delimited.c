/* Delimited lines to columns: only what is certain. Any other line is left over, to Python (`formats/kinds/delimited`).
 *
 * A line that is taken has exactly the fields and values that Python makes of it. Left over are lines with a line break
 * or an escape in a field, and with a text that is not a plain value of its column. Values are read in place; only strings
 * that are needed are copied.
 */
#include "columns.h"
#include "json_numbers.h"

typedef struct {
    const uint8_t *separator;
    int32_t separator_length;
    const uint8_t *null;
    int32_t null_length;
    int32_t quote;  /* 0: there is none */
    int32_t escape; /* within quotes; may be the quote */
    const char *blanks; /* around fields, which do not count; none where fields are not trimmed */
} dialect;

/* ---- values ---- */

static bool put_boolean(column *to, const uint8_t *at, const uint8_t *end)
{
    bool value = end - at == 4 && memcmp(at, "true", 4) == 0;
    if (!value && (end - at != 5 || memcmp(at, "false", 5) != 0))
        return false;
    if (to->values != NULL) {
        if (value)
            bit_set(to->values, to->length);
        else
            bit_clear(to->values, to->length);
    }
    return true;
}

static bool put_whole(column *to, const uint8_t *at, const uint8_t *end)
{
    int64_t value = 0;
    if (read_integer(at, end, &value) != end)
        return false;
    int64_t row = to->length;
    void *values = to->values;
    switch (to->type->kind) {
    case TINYINT:
        if (values != NULL)
            ((int8_t *)values)[row] = (int8_t)value;
        return value == (int8_t)value;
    case SMALLINT:
        if (values != NULL)
            ((int16_t *)values)[row] = (int16_t)value;
        return value == (int16_t)value;
    case INT:
        if (values != NULL)
            ((int32_t *)values)[row] = (int32_t)value;
        return value == (int32_t)value;
    default:
        if (values != NULL)
            ((int64_t *)values)[row] = value;
        return true;
    }
}

static bool put_floating(column *to, const uint8_t *at, const uint8_t *end)
{
    number found;
    double value;
    if (read_number_text(at, end, &found) != end)
        return false;
    found.whole = false; /* `-0` is a double, unlike in JSON */
    if (!double_of(&found, &value))
        return false;
    if (to->type->kind == DOUBLE) {
        if (to->values != NULL)
            ((double *)to->values)[to->length] = value;
        return true;
    }
    if (to->values != NULL)
        ((float *)to->values)[to->length] = (float)value;
    return value < FLOAT_END && value > -FLOAT_END;
}

static bool put_decimal(column *to, const uint8_t *at, const uint8_t *end)
{
    number found;
    int128 units;
    if (read_number_text(at, end, &found) != end ||
        !decimal_of(&found, to->type->precision, to->type->scale, &units))
        return false;
    if (to->values != NULL)
        ((int128 *)to->values)[to->length] = units;
    return true;
}

static bool put_date(column *to, const uint8_t *at, const uint8_t *end)
{
    int32_t days;
    if (!read_date(at, end, &days))
        return false;
    if (to->values != NULL)
        ((int32_t *)to->values)[to->length] = days;
    return true;
}

static bool put_moment(column *to, const uint8_t *at, const uint8_t *end)
{
    int64_t micros;
    if (!read_moment(at, end, to->type->kind == TIMESTAMP, &micros))
        return false;
    if (to->values != NULL)
        ((int64_t *)to->values)[to->length] = micros;
    return true;
}

/* One value; false leaves the record over. What is before `limit` may be read. */
static bool put_value(column *to, const uint8_t *at, const uint8_t *end, const uint8_t *limit)
{
    bool done;
    if (to->type->kind == STRING)
        return column_put_text(to, at, (int32_t)(end - at), limit);
    if (at == end || !column_room(to))
        return false;
    switch (to->type->kind) {
    case BOOLEAN:
        done = put_boolean(to, at, end);
        break;
    case FLOAT:
    case DOUBLE:
        done = put_floating(to, at, end);
        break;
    case DECIMAL:
        done = put_decimal(to, at, end);
        break;
    case DATE:
        done = put_date(to, at, end);
        break;
    case TIMESTAMP:
    case TIMESTAMP_NTZ:
        done = put_moment(to, at, end);
        break;
    default:
        done = put_whole(to, at, end);
    }
    to->length += done;
    return done;
}

/* ---- lines ---- */

static bool is_blank(const dialect *by, uint8_t byte)
{
    return byte != 0 && strchr(by->blanks, byte) != NULL;
}

static bool is_separator(const dialect *by, const uint8_t *at, const uint8_t *end)
{
    return end - at >= by->separator_length && memcmp(at, by->separator, (size_t)by->separator_length) == 0;
}

/* Where the next separator begins, or the end. */
static const uint8_t *field_end(const dialect *by, const uint8_t *at, const uint8_t *end)
{
    uint8_t first = by->separator[0];
    for (; at < end; at++)
        if (*at == first && (by->separator_length == 1 || is_separator(by, at, end)))
            return at;
    return end;
}

/* A field after its opening quote; returns what follows the closing one, NULL where the field is left over. */
static const uint8_t *read_quoted(column *to, const dialect *by, const uint8_t *at, const uint8_t *end)
{
    const uint8_t *stop = at;
    while (stop < end && *stop != by->quote && *stop != by->escape)
        stop++;
    if (stop == end || *stop != by->quote)
        return NULL;
    if (stop + 1 < end && !is_separator(by, stop + 1, end))
        return NULL; /* also a doubled quote */
    return put_value(to, at, stop, end) ? stop + 1 : NULL;
}

static const uint8_t *read_plain(column *to, const dialect *by, const uint8_t *at, const uint8_t *end)
{
    const uint8_t *next = field_end(by, at, end), *stop = next;
    if (by->blanks[0] != 0) {
        while (at < stop && is_blank(by, *at))
            at++;
        if (at < stop && by->quote != 0 && *at == by->quote)
            return NULL;
        while (at < stop && is_blank(by, stop[-1]))
            stop--;
    }
    bool null = stop - at == by->null_length && memcmp(at, by->null, (size_t)by->null_length) == 0;
    return (null ? column_put_null(to) : put_value(to, at, stop, end)) ? next : NULL;
}

static bool read_line(column *record, const void *how, const uint8_t *at, const uint8_t *end)
{
    const dialect *by = how;
    if (end > at && end[-1] == '\n') {
        end--;
        end -= end > at && end[-1] == '\r';
    }
    size_t size = (size_t)(end - at);
    if (memchr(at, '\n', size) != NULL || memchr(at, '\r', size) != NULL || !is_utf8(at, end))
        return false;
    int32_t count = record->type->count;
    for (int32_t i = 0; i < count; i++) {
        column *to = record->children + i;
        bool quoted = by->quote != 0 && at < end && *at == by->quote;
        at = quoted ? read_quoted(to, by, at + 1, end) : read_plain(to, by, at, end);
        if (at == NULL || (i + 1 < count && at == end))
            return false;
        at += i + 1 < count ? by->separator_length : 0;
    }
    return at == end;
}

int32_t tg_delimited_decode(const field *record, const dialect *of, const uint8_t *const *values,
                            const int32_t *lengths, int64_t count, int64_t *left, int64_t *left_count,
                            struct ArrowArray *array, struct ArrowSchema *schema)
{
    decoding by = {NULL, read_line, of, false};
    return records_decode(record, &by, values, lengths, count, left, left_count, array, schema);
}
