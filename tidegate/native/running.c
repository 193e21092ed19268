/* Running totals: the rows of a batch are added to the totals of their keys, in order.
 *
 * Python's `Aggregate.run` is the definition. A row for which the result here is not certain to be equal to the last
 * bit is left over, and with it all later rows of its key: Python adds them. Values are int64 or double.
 */
#include <float.h>

#include "lent.h"
#include "utf8.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF /* GCC contracts nothing with -std=c11 */
#endif

enum { FIELDS_MAX = 3 };

/* One number each with `TotalFunction` in running.py. The fields of an accumulator follow. */
enum function {
    COUNT,   /* count */
    SUM,     /* sum; of doubles: sum, error */
    AVERAGE, /* of doubles: sum, error, count */
    MIN,     /* value */
    MAX,     /* value */
    FIRST,   /* value, whether there is one */
    LAST,    /* value */
};

typedef union {
    int64_t whole;
    double real;
} number;

/* `Total` of running.py. */
typedef struct {
    const char *names[1 + FIELDS_MAX]; /* of the result and the fields */
    int32_t function;
    int32_t real; /* whether the first field is of doubles */
    int32_t takes_null;
    int32_t field_count;
    const struct ArrowArray *argument;  /* NULL: rows are counted without one */
    const struct ArrowArray *condition; /* rows for which it is true count; NULL: all */
    const struct ArrowArray *excluded;  /* keys with a value here are left over; NULL: none */
    const struct ArrowArray *fields[FIELDS_MAX]; /* one value per key */
    const uint32_t *left; /* rows that are left over, ascending; valid as long as the columns */
    int64_t left_count;
} total;

typedef struct {
    number *values;
    uint8_t *known;
} numbers;

/* A total while rows are added. */
typedef struct {
    total *of;
    arena *owner;
    int64_t rows;
    numbers fields[FIELDS_MAX];
    numbers result;
    uint8_t *key_is_left; /* a byte for each key */
    uint32_t *left;
} running;

static bool numbers_new(numbers *to, arena *owner, int64_t count)
{
    to->values = arena_take(owner, count * (int64_t)sizeof(number));
    to->known = bits_new(owner, count);
    return to->values != NULL && to->known != NULL;
}

/* NULL is 0, and stays NULL if the field is nullable. */
static bool numbers_copy(numbers *to, arena *owner, const struct ArrowArray *from, bool nullable)
{
    int64_t count = from->length;
    if (!numbers_new(to, owner, count))
        return false;
    const number *values = lent_values(from, sizeof(number));
    if (from->buffers[KNOWN] == NULL) {
        if (count > 0)
            memcpy(to->values, values, (size_t)count * sizeof(number));
        return true;
    }
    for (int64_t i = 0; i < count; i++) {
        bool known = lent_known(from, i);
        to->values[i] = known ? values[i] : (number){.whole = 0};
        if (!known && nullable)
            bit_clear(to->known, i);
    }
    return true;
}

static bool is_known(const numbers *these, int64_t at)
{
    return (these->known[at >> 3] >> (at & 7) & 1) != 0;
}

static void put(numbers *to, int64_t at, number value, bool known)
{
    to->values[at] = value;
    if (LIKELY(known == is_known(to, at)))
        return;
    if (known)
        bit_set(to->known, at);
    else
        bit_clear(to->known, at);
}

static bool add_whole(numbers *to, int64_t key, int64_t value)
{
    number sum;
    if (__builtin_add_overflow(to->values[key].whole, value, &sum.whole))
        return false;
    put(to, key, sum, true);
    return true;
}

/* Each addition yields its own error (Knuth: The Art of Computer Programming, 4.2.2), and so does that of both errors,
 * which must be 0. */
static bool add_real(numbers *sums, numbers *errors, int64_t key, double value)
{
    double sum = sums->values[key].real, error = errors->values[key].real;
    double added = sum + value;
    double back = added - sum;
    double lost = (sum - (added - back)) + (value - back);
    double rest = error + lost;
    if (FLT_EVAL_METHOD != 0 || !(rest - error == lost && rest - lost == error && -DBL_MAX < added && added < DBL_MAX))
        return false; /* always for NaN */
    sum = added + rest;
    put(sums, key, (number){.real = sum}, true);
    put(errors, key, (number){.real = rest - (sum - added)}, true);
    return true;
}

static bool is_better(const running *this, number value, number than)
{
    bool greatest = this->of->function == MAX;
    if (!this->of->real)
        return greatest ? value.whole > than.whole : value.whole < than.whole;
    if (greatest) /* NaN is above every number */
        return value.real > than.real || value.real != value.real;
    return value.real < than.real || than.real != than.real;
}

/* False where the row must be left over; then nothing has changed. */
static bool add(running *this, int64_t key, number value, bool known)
{
    numbers *first = this->fields, *second = this->fields + 1;
    switch (this->of->function) {
    case COUNT:
        return add_whole(first, key, 1);
    case SUM:
        return this->of->real ? add_real(first, second, key, value.real) : add_whole(first, key, value.whole);
    case AVERAGE:
        return add_real(first, second, key, value.real);
    case MIN:
    case MAX:
        if (!is_known(first, key) || is_better(this, value, first->values[key]))
            put(first, key, value, true);
        return true;
    case FIRST:
        if (second->values[key].whole)
            return true;
        put(second, key, (number){.whole = 1}, true);
        put(first, key, value, known);
        return true;
    default:
        put(first, key, value, known);
        return true;
    }
}

static double absolute(double value)
{
    return value < 0 ? -value : value;
}

/* The double whose bits are `steps` away; not across 0. */
static double step(double value, int64_t steps)
{
    number moved = {.real = value};
    moved.whole += steps;
    return moved.real;
}

/* high - quotient * count, which is a double if the quotient is near: its two halves by Dekker's splitting are
 * multiplied without rounding. */
static double remainder_of(double high, double quotient, double count)
{
    double large = (0x1p27 + 1) * quotient;
    double upper = large - (large - quotient);
    return (high - upper * count) - (quotient - upper) * count;
}

/* The nearest double to (high + low) / count, where `high` is the nearest double to the sum and positive. False where
 * it is not found. What is left of a quotient is compared with half the distance to the next double. */
static bool divide_rounded(double high, double low, double count, double *quotient)
{
    double near = high / count;
    near += (remainder_of(high, near, count) + low) / count;
    double rest = remainder_of(high, near, count);
    double left = rest + low, back = left - rest;
    double lost = (rest - (left - back)) + (low - back);
    int64_t away = left < 0 ? -1 : 1;
    double other = step(near, away);
    double half = absolute(other - near) / 2 * count;
    double beyond = absolute(left) - half;
    if (beyond == 0)
        beyond = away < 0 ? -lost : lost;
    number bits = {.real = near};
    *quotient = beyond == 0 && bits.whole % 2 != 0 ? other : near;
    return beyond <= 0;
}

/* See `divide_pair` in exact.py. */
static bool divide_pair(double high, double low, double count, double *quotient)
{
    *quotient = high / count;
    if (low == 0)
        return true;
    if (!(count < 0x1p26 && 1e-250 < absolute(*quotient) && absolute(*quotient) < 1e250))
        return false;
    if (high > 0)
        return divide_rounded(high, low, count, quotient);
    bool found = divide_rounded(-high, -low, count, quotient);
    *quotient = -*quotient;
    return found;
}

/* Adds a value to an average and divides. */
static bool run_average(running *this, int64_t row, int64_t key, number value, bool counts)
{
    numbers *sums = this->fields, *errors = this->fields + 1, *counted = this->fields + 2;
    number sum = sums->values[key], error = errors->values[key], result = {.real = 0};
    bool was_known = is_known(sums, key);
    int64_t count = counted->values[key].whole;
    if (counts && (count == INT64_MAX || !add(this, key, value, true)))
        return false;
    count += counts;
    bool known = was_known || counts;
    if (known && (count <= 0 || count >= (int64_t)1 << 53 ||
                  !divide_pair(sums->values[key].real, errors->values[key].real, (double)count, &result.real))) {
        put(sums, key, sum, was_known);
        put(errors, key, error, true);
        return false;
    }
    put(counted, key, (number){.whole = count}, true);
    put(&this->result, row, result, known);
    return true;
}

static bool run_row(running *this, int64_t row, int64_t key, number value, bool known)
{
    const total *of = this->of;
    bool counts = (known || of->takes_null) && (of->condition == NULL || (lent_known(of->condition, row) &&
                                                                          lent_boolean(of->condition, row)));
    if (of->function == AVERAGE)
        return run_average(this, row, key, value, counts);
    if (counts && !add(this, key, value, known))
        return false;
    put(&this->result, row, this->fields[0].values[key], is_known(this->fields, key));
    return true;
}

static bool leave_over(running *this, int64_t row, int64_t key)
{
    if (this->left == NULL)
        this->left = arena_take(this->owner, this->rows * (int64_t)sizeof(uint32_t));
    if (this->left == NULL)
        return false;
    this->key_is_left[key] = 1;
    this->left[this->of->left_count++] = (uint32_t)row;
    put(&this->result, row, (number){.whole = 0}, false);
    return true;
}

static bool running_begin(running *this, arena *owner, total *of, int64_t rows, int64_t keys)
{
    *this = (running){.of = of, .owner = owner, .rows = rows, .key_is_left = arena_take(owner, keys)};
    if (this->key_is_left == NULL || !numbers_new(&this->result, owner, rows))
        return false;
    for (int64_t i = 0; i < keys; i++)
        this->key_is_left[i] = of->excluded != NULL && lent_known(of->excluded, i);
    for (int32_t i = 0; i < of->field_count; i++)
        if (!numbers_copy(this->fields + i, owner, of->fields[i], i == 0 && of->function != COUNT))
            return false;
    of->left_count = 0;
    return true;
}

/* Keys are below the number of keys. */
static bool run_rows(running *this, const uint32_t *keys)
{
    const struct ArrowArray *argument = this->of->argument;
    bool counting = this->of->function == COUNT; /* whatever the values are */
    const number *values = argument == NULL || counting ? NULL : lent_values(argument, sizeof(number));
    for (int64_t row = 0; row < this->rows; row++) {
        bool known = argument == NULL || lent_known(argument, row);
        number value = known && values != NULL ? values[row] : (number){.whole = 0};
        bool left = this->key_is_left[keys[row]] || !run_row(this, row, keys[row], value, known);
        if (UNLIKELY(left) && !leave_over(this, row, keys[row]))
            return false;
    }
    this->of->left = this->left;
    return true;
}

static bool numbers_give(const numbers *these, int64_t count, bool real, const char *name, arena *owner,
                         struct ArrowArray *array, struct ArrowSchema *schema)
{
    return arrow_values(array, owner, count, these->known, bits_count_zeros(these->known, count), these->values) &&
           arrow_schema(schema, owner, real ? "g" : "l", name, NULL, 0);
}

static bool field_is_real(const total *of, int32_t field)
{
    bool has_error = of->function == SUM || of->function == AVERAGE;
    return of->real && field <= has_error;
}

/* A struct of columns to return. */
typedef struct {
    struct ArrowArray *arrays;
    struct ArrowSchema *schemas;
    int64_t count;
} columns;

static bool columns_new(columns *to, arena *owner, int64_t count)
{
    *to = (columns){.arrays = arena_take(owner, count * (int64_t)sizeof(struct ArrowArray)),
                    .schemas = arena_take(owner, count * (int64_t)sizeof(struct ArrowSchema))};
    return to->arrays != NULL && to->schemas != NULL;
}

static bool columns_add(columns *to, const numbers *these, int64_t rows, bool real, const char *name, arena *owner)
{
    bool done = numbers_give(these, rows, real, name, owner, to->arrays + to->count, to->schemas + to->count);
    to->count++;
    return done;
}

static bool columns_give(const columns *these, int64_t rows, arena *owner, struct ArrowArray *array,
                         struct ArrowSchema *schema)
{
    return arrow_parent(array, owner, rows, NULL, 0, NULL, these->arrays, these->count) &&
           arrow_schema(schema, owner, "+s", "", these->schemas, these->count);
}

static bool run_all(arena *owner, const uint32_t *numbers_of_rows, int64_t rows, int64_t keys, total *totals,
                    int64_t count, int64_t fields, struct ArrowArray *arrays, struct ArrowSchema *schemas)
{
    columns results, accumulators;
    if (!columns_new(&results, owner, count) || !columns_new(&accumulators, owner, fields))
        return false;
    for (int64_t i = 0; i < count; i++) {
        running this;
        total *of = totals + i;
        if (!running_begin(&this, owner, of, rows, keys) || !run_rows(&this, numbers_of_rows) ||
            !columns_add(&results, &this.result, rows, of->real, of->names[0], owner))
            return false;
        for (int32_t j = 0; j < of->field_count; j++)
            if (!columns_add(&accumulators, this.fields + j, keys, field_is_real(of, j), of->names[1 + j], owner))
                return false;
    }
    return columns_give(&results, rows, owner, arrays, schemas) &&
           columns_give(&accumulators, keys, owner, arrays + 1, schemas + 1);
}

static bool has(const struct ArrowArray *column, int64_t length, int64_t buffers)
{
    return column->length == length && column->n_buffers >= buffers;
}

static bool is_consistent(const total *of, int64_t rows, int64_t keys)
{
    static const int32_t FIELDS[] = {1, 1, 3, 1, 1, 2, 1};
    if (of->function < COUNT || of->function > LAST ||
        of->field_count != FIELDS[of->function] + (of->function == SUM && of->real))
        return false;
    if ((of->argument == NULL && of->function != COUNT) || (of->function == AVERAGE && !of->real))
        return false;
    if (of->argument != NULL && !has(of->argument, rows, of->function == COUNT ? 1 : 2))
        return false;
    if ((of->condition != NULL && !has(of->condition, rows, 2)) || (of->excluded != NULL && !has(of->excluded, keys, 1)))
        return false;
    for (int32_t i = 0; i < of->field_count; i++)
        if (!has(of->fields[i], keys, 2))
            return false;
    return true;
}

enum { REFUSED = -1, EXPORT_BYTES = 512 /* about what Arrow takes for a column */ };

/* Adds rows to the totals of their keys. `numbers_of_rows` has the number of each row's key, below `keys`. The first
 * array gets the result of each total after each row, the second one the new fields. Returns 1, 0 where memory is
 * missing, and REFUSED for columns that do not match the totals.
 */
int32_t tg_running(const struct ArrowArray *numbers_of_rows, int64_t keys, total *totals, int64_t count,
                   struct ArrowArray *arrays, struct ArrowSchema *schemas)
{
    int64_t rows = numbers_of_rows->length, fields = 0;
    const uint32_t *keys_of_rows = lent_values(numbers_of_rows, sizeof(uint32_t));
    if (!has(numbers_of_rows, rows, 2))
        return REFUSED;
    for (int64_t i = 0; i < rows; i++)
        if (keys_of_rows[i] >= keys)
            return REFUSED;
    for (int64_t i = 0; i < count; i++) {
        if (!is_consistent(totals + i, rows, keys))
            return REFUSED;
        fields += totals[i].field_count;
    }
    arena *owner = arena_new((count * (rows + keys) + fields * keys) * 9 + (count + fields + 2) * EXPORT_BYTES);
    if (owner == NULL)
        return 0;
    bool done = run_all(owner, keys_of_rows, rows, keys, totals, count, fields, arrays, schemas);
    if (!done) {
        arrays[1].release = NULL;
        schemas[1].release = NULL;
    }
    return arrow_finish(owner, done, arrays, schemas);
}

/* The last row of each key, ascending. As above. */
int32_t tg_last_rows(const struct ArrowArray *numbers_of_rows, int64_t keys, struct ArrowArray *array,
                     struct ArrowSchema *schema)
{
    int64_t rows = numbers_of_rows->length, found = 0;
    const uint32_t *keys_of_rows = lent_values(numbers_of_rows, sizeof(uint32_t));
    if (!has(numbers_of_rows, rows, 2))
        return REFUSED;
    arena *owner = arena_new((rows + keys) * (int64_t)sizeof(uint32_t) + EXPORT_BYTES);
    if (owner == NULL)
        return 0;
    uint32_t *last = arena_take(owner, keys * (int64_t)sizeof(uint32_t));
    uint32_t *these = arena_take(owner, rows * (int64_t)sizeof(uint32_t));
    bool done = last != NULL && these != NULL;
    for (int64_t i = 0; done && i < rows; i++) {
        if (keys_of_rows[i] >= keys) {
            arrow_finish(owner, false, array, schema);
            return REFUSED;
        }
        last[keys_of_rows[i]] = (uint32_t)i;
    }
    for (int64_t i = 0; done && i < rows; i++)
        if (last[keys_of_rows[i]] == i)
            these[found++] = (uint32_t)i;
    done = done && arrow_values(array, owner, found, NULL, 0, these) && arrow_schema(schema, owner, "I", "", NULL, 0);
    return arrow_finish(owner, done, array, schema);
}
