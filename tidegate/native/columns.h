/* The columns that records become, of whatever format, while they are filled, and what is declared of them. */
#ifndef TIDEGATE_COLUMNS_H
#define TIDEGATE_COLUMNS_H

#include "arrow.h"
#include "utf8.h"

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

struct vocabulary;

/* One number each with `_KINDS` in `columns.py`. */
enum kind {
    BOOLEAN,
    TINYINT,
    SMALLINT,
    INT,
    BIGINT,
    FLOAT,
    DOUBLE,
    DECIMAL,
    STRING,
    BINARY,
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ARRAY,
    MAP, /* with texts as keys; its child is a struct of `key` and `value` */
    STRUCT,
};

/* What is declared: of the whole record, a struct. */
typedef struct field {
    const char *name; /* of JSON without quotes, backslashes and control characters */
    int32_t name_length;
    int32_t kind;
    int32_t wanted; /* whether it is returned; others are only checked */
    int32_t precision; /* of a decimal; of a timestamp in JSON NEEDS_OFFSET or 0 */
    int32_t scale;
    int32_t count;
    const struct field *children;
} field;

enum { NEEDS_OFFSET = 1 }; /* a text without one is left over */

/* One call. */
typedef struct {
    arena *owner;   /* of the columns that are returned */
    arena *scratch; /* of everything else */
    bool strict;    /* if records name their fields: a record with an undeclared field is left over */
    bool out_of_memory;
} run;

enum flag {
    STRICT = 1,      /* records with fields that are not declared are left over */
    NEEDS_FIELD = 2, /* and those that have fields, of which none is declared */
};

/* A declared field, or a part of one. Those that are not returned have a length only. */
typedef struct column {
    const field *type;
    run *run;
    int64_t length;
    int64_t capacity;
    uint8_t *known; /* NULL for a column that is not returned; then `values` is also NULL */
    void *values;   /* of a list the offsets */
    texts texts;
    struct column *children;
    struct vocabulary *words; /* of a struct, where its fields are found by their names */
} column;

#pragma GCC visibility push(hidden)

/* About what the columns of a record take, without texts and what is in lists. */
int64_t columns_bytes(const field *record, int64_t rows);

/* Creates the columns of a record, which is a struct, for this many rows. Returns false if memory is missing, as below. */
bool columns_begin(column *record, const field *type, run *of, int64_t rows);

/* Ensures room for one more row. */
bool column_grow(column *to);

bool column_put_null(column *to);

/* NULLs for the fields of a struct that its next row did not have. */
bool column_put_missing(column *object);

/* A copy. What is before `end` may be read. */
bool column_put_text(column *to, const uint8_t *from, int32_t length, const uint8_t *end);

/* Says that memory for a text was missing; false. */
bool texts_failed(column *of);

/* A list of everything that its child has got since the one before. There is room for it. */
void column_end_list(column *to);

/* Whether the keys of a map are distinct, from `first` on. Not called for maps that are skipped. */
bool keys_differ(const column *keys, int64_t first);

/* Takes rows back, down to `length`, and what a record that was left over has put into columns below. */
void column_truncate(column *of, int64_t length);

/* Returns the requested columns of a struct; see `arrow_finish`. */
bool columns_export(column *record, struct ArrowArray *array, struct ArrowSchema *schema);

/* How the records of a format are decoded. */
typedef struct {
    bool (*begin)(column *record); /* before the first one; NULL for nothing. False if memory is missing */
    bool (*read)(column *record, const void *how, const uint8_t *at, const uint8_t *end); /* one row; see below */
    const void *how;
    bool strict;
} decoding;

/* Decodes the records that `read` is certain of into the rows of a struct, in order, with the fields that are wanted.
 * Where it returns false, what the record has put into columns is taken back. The places of all these are in `left`,
 * which has room for `count`. Returns 0 if memory is missing.
 */
int32_t records_decode(const field *record, const decoding *by, const uint8_t *const *values, const int32_t *lengths,
                       int64_t count, int64_t *left, int64_t *left_count, struct ArrowArray *array,
                       struct ArrowSchema *schema);

#pragma GCC visibility pop

/* Halfway between the largest float and 2^128: nearest to smaller doubles is a float that is finite. */
static const double FLOAT_END = 0x1.ffffffp127;

static inline bool column_room(column *to)
{
    return LIKELY(to->length < to->capacity) || column_grow(to);
}

#endif
