/* Dates and times of JSON; see json_numbers.h. */
#include "json_numbers.h"

enum {
    DATE_BYTES = 10,
    MOMENT_BYTES = 19, /* to the seconds */
    OFFSET_BYTES = 6,
    DAYS_TO_1970 = 719163, /* from the day before 0001-01-01 */
    SECOND = 1000000,      /* in microseconds */
    FRACTION_DIGITS = 6,
};

static const int32_t DAYS_BEFORE[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
static const int32_t DAYS_OF[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

/* Two digits; anything else makes `wrong` true. */
static int32_t read_two(const uint8_t *at, bool *wrong)
{
    uint8_t tens = (uint8_t)(at[0] - '0'), ones = (uint8_t)(at[1] - '0');
    *wrong |= tens > 9 || ones > 9;
    return tens * 10 + ones;
}

static bool is_leap(int32_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* The day of the ten bytes at `at`. */
static bool read_day(const uint8_t *at, int32_t *year, int32_t *days)
{
    bool wrong = at[4] != '-' || at[7] != '-';
    *year = read_two(at, &wrong) * 100 + read_two(at + 2, &wrong);
    int32_t month = read_two(at + 5, &wrong), day = read_two(at + 8, &wrong);
    if (wrong || *year < 1 || month < 1 || month > 12)
        return false;
    bool leap = is_leap(*year);
    if (day < 1 || day > DAYS_OF[month - 1] + (month == 2 && leap))
        return false;
    int32_t before = *year - 1;
    int32_t to_year = before * 365 + before / 4 - before / 100 + before / 400;
    *days = to_year + DAYS_BEFORE[month - 1] + (month > 2 && leap) + day - DAYS_TO_1970;
    return true;
}

bool read_date(const uint8_t *at, const uint8_t *end, int32_t *days)
{
    int32_t year;
    return end - at == DATE_BYTES && read_day(at, &year, days);
}

/* Seconds of the eight bytes HH:MM:SS. */
static bool read_clock(const uint8_t *at, int32_t *seconds)
{
    bool wrong = at[2] != ':' || at[5] != ':';
    int32_t hour = read_two(at, &wrong), minute = read_two(at + 3, &wrong), second = read_two(at + 6, &wrong);
    *seconds = (hour * 60 + minute) * 60 + second;
    return !wrong && hour <= 23 && minute <= 59 && second <= 59;
}

/* Microseconds of the digits here. More than six are cut off: no time becomes later than its text. */
static const uint8_t *read_fraction(const uint8_t *at, const uint8_t *end, int32_t *micros)
{
    int32_t digits = 0, sum = 0;
    for (; at < end && is_digit(*at) && digits < FRACTION_DIGITS; at++, digits++)
        sum = sum * 10 + (*at - '0');
    if (digits == 0)
        return NULL;
    for (; digits < FRACTION_DIGITS; digits++)
        sum *= 10;
    *micros = sum;
    while (at < end && is_digit(*at))
        at++;
    return at;
}

/* Seconds of `Z` or +HH:MM, which reaches to the end. */
static bool read_offset(const uint8_t *at, const uint8_t *end, int32_t *seconds)
{
    if (end - at == 1 && *at == 'Z') {
        *seconds = 0;
        return true;
    }
    if (end - at != OFFSET_BYTES || (at[0] != '+' && at[0] != '-'))
        return false;
    bool wrong = at[3] != ':';
    int32_t hours = read_two(at + 1, &wrong), minutes = read_two(at + 4, &wrong);
    *seconds = (hours * 60 + minutes) * 60;
    if (at[0] == '-')
        *seconds = -*seconds;
    return !wrong && hours <= 23 && minutes <= 59;
}

bool read_moment(const uint8_t *at, const uint8_t *end, bool zoned, int64_t *micros)
{
    int32_t year, days, clock, fraction = 0, offset = 0;
    if (end - at < MOMENT_BYTES || (at[10] != 'T' && at[10] != ' ') || !read_day(at, &year, &days) ||
        !read_clock(at + DATE_BYTES + 1, &clock))
        return false;
    if (year < 2 || year > 9998) /* an offset could move it out of the calendar */
        return false;
    at += MOMENT_BYTES;
    if (at < end && *at == '.') {
        at = read_fraction(at + 1, end, &fraction);
        if (at == NULL)
            return false;
    }
    if (at < end && (!zoned || !read_offset(at, end, &offset)))
        return false;
    *micros = ((int64_t)days * 86400 + clock - offset) * SECOND + fraction;
    return true;
}
