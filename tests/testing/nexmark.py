"""The queries of Nexmark in SQLite's SQL, over tables of the events in the order of their arrival.

Times are ms since 1970. Where SQL leaves open which of several rows comes first, they are ordered as a ranking orders
them (ADR 37).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from examples.nexmark.generate import Event

Row = tuple[object, ...]

TABLES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "bids": ("bid", ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")),
    "persons": ("person", ("id", "name", "emailAddress", "city", "state", "dateTime", "extra")),
    "auctions": (
        "auction",
        ("id", "itemName", "initialBid", "reserve", "dateTime", "expires", "seller", "category", "extra"),
    ),
    "side-input": ("side_input", ("key", "value")),
}
"""Kind of event -> its table and columns."""
TIMES = frozenset({"dateTime", "expires", "starttime", "endtime", "stime", "bid_dateTime", "auction_dateTime"})
ALL = ", ".join(TABLES["bids"][1])

_RANKS = {"rank1": "price < 10000", "rank2": "price >= 10000 and price < 1000000", "rank3": "price >= 1000000"}


def _by_rank(call: str, name: str) -> str:
    """An aggregate of all rows and of those of each level of price."""
    filtered = [f"{call} filter (where {condition}) {rank}_{name}" for rank, condition in _RANKS.items()]
    return ", ".join([f"{call} total_{name}", *filtered])


_BIDS_BY_RANK = _by_rank("count(*)", "bids")
_STATISTICS = ", ".join(
    [_BIDS_BY_RANK, _by_rank("count(distinct bidder)", "bidders"), _by_rank("count(distinct auction)", "auctions")]
)
_DAY = "strftime('%Y-%m-%d', dateTime / 1000, 'unixepoch')"
_FOLDERS = """json('["' || replace(url, '/', '","') || '"]')"""

QUERIES: Mapping[str, str] = {
    "q0": "select auction, bidder, price, dateTime, extra from bid",
    "q1": "select auction, bidder, round(price * 0.908, 3) price, dateTime, extra from bid",
    "q2": "select auction, price from bid where auction % 123 = 0",
    "q3": """
        select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')""",
    "q4": """
        with winning as (
            select a.id, a.category, max(b.price) final
            from auction a join bid b on a.id = b.auction and b.dateTime between a.dateTime and a.expires group by 1, 2)
        select category, avg(final) final from winning group by 1""",
    "q5": """
        with number(n) as (values (0), (1), (2), (3), (4)),
        windows as (
            select auction, count(*) num, dateTime / 2000 * 2000 - n * 2000 starttime from bid, number group by 1, 3
        ),
        ranked as (select *, row_number() over (partition by starttime order by num desc, auction) place from windows)
        select auction, num, starttime, starttime + 10000 endtime from ranked where place = 1""",
    "q7": """
        with ranked as (
            select distinct auction, bidder, price, dateTime, extra, row_number() over (
                partition by dateTime / 10000 order by price desc, auction, bidder, dateTime, extra) place from bid
        )
        select auction, price, bidder, dateTime, extra from ranked where place = 1""",
    "q8": """
        with p as (select id, name, dateTime / 10000 starttime from person group by 1, 2, 3),
        a as (select seller, dateTime / 10000 starttime from auction group by 1, 2)
        select p.id, p.name, p.starttime * 10000 stime
        from p join a on p.id = a.seller and p.starttime = a.starttime""",
    "q9": """
        with ranked as (
            select a.*, b.bidder, b.price, b.dateTime bid_dateTime, b.extra bid_extra, row_number() over (
                partition by a.id order by b.price desc, b.dateTime, b.bidder, b.extra) place
            from auction a join bid b on a.id = b.auction and b.dateTime between a.dateTime and a.expires)
        select id, itemName, initialBid, reserve, dateTime, expires, seller, category, extra,
            bidder, price, bid_dateTime, bid_extra from ranked where place = 1""",
    "q11": """
        with gaps as (select bidder, dateTime, dateTime - lag(dateTime) over earlier > 10000 gap from bid
            window earlier as (partition by bidder order by dateTime)),
        numbered as (select bidder, dateTime, sum(coalesce(gap, 0)) over (
            partition by bidder order by dateTime) session from gaps)
        select bidder, count(*) bid_count, min(dateTime) starttime, max(dateTime) + 10000 endtime
        from numbered group by bidder, session""",
    "q12": """
        select bidder, count(*) bid_count, arrived / 10000 * 10000 starttime, arrived / 10000 * 10000 + 10000 endtime
        from bid group by bidder, arrived / 10000""",
    "q13": """
        select auction, bidder, price, dateTime, value from bid join side_input on auction % 10000 = key""",
    "q14": """
        select auction, bidder, round(0.908 * price, 3) price, case
            when strftime('%H', dateTime / 1000, 'unixepoch') between '08' and '18' then 'dayTime'
            when strftime('%H', dateTime / 1000, 'unixepoch') between '07' and '19' then 'otherTime'
            else 'nightTime' end bidTimeType,
            dateTime, extra, length(extra) - length(replace(extra, 'c', '')) c_counts
        from bid where 0.908 * price > 1000000 and 0.908 * price < 50000000""",
    "q15": f"select {_DAY} day, {_STATISTICS} from bid group by 1",
    "q16": f"""
        select channel, {_DAY} day, max(strftime('%H:%M', dateTime / 1000, 'unixepoch')) minute, {_STATISTICS}
        from bid group by 1, 2""",
    "q17": f"""
        select auction, {_DAY} day, {_BIDS_BY_RANK}, min(price) min_price, max(price) max_price,
            sum(price) / count(*) avg_price, sum(price) sum_price
        from bid group by 1, 2""",
    "q18": f"""
        with numbered as (select *, row_number() over (
            partition by bidder, auction order by dateTime desc, number desc) place from bid)
        select {ALL} from numbered where place = 1""",
    "q19": f"""
        with ranked as (select *, row_number() over (
            partition by auction order by price desc, bidder, channel, url, dateTime, extra) rank from bid)
        select {ALL}, rank from ranked where rank <= 10""",
    "q20": """
        select auction, bidder, price, channel, url, b.dateTime, b.extra, itemName, initialBid, reserve,
            a.dateTime auction_dateTime, expires, seller, category, a.extra auction_extra
        from bid b join auction a on b.auction = a.id where category = 10""",
    "q21": """
        with ids as (select auction, bidder, price, channel, case lower(channel)
            when 'apple' then '0' when 'google' then '1' when 'facebook' then '2' when 'baidu' then '3'
            else iif(instr(url, '&channel_id='), substr(url, instr(url, '&channel_id=') + 12), null) end channel_id
            from bid)
        select auction, bidder, price, channel, channel_id from ids where channel_id is not null""",
    "q22": f"""
        select auction, bidder, price, channel, {_FOLDERS} ->> 3 dir1, {_FOLDERS} ->> 4 dir2, {_FOLDERS} ->> 5 dir3
        from bid""",
    "q23": """
        select bidder, price, channel, url, b.extra bid_extra, p.id person_id, name, emailAddress, city, state,
            p.extra person_extra, itemName, initialBid, reserve, a.dateTime auction_dateTime, expires, seller, category,
            a.extra auction_extra
        from bid b join person p on p.id = b.bidder join auction a on a.seller = b.bidder""",
}

UPDATED: Mapping[str, tuple[str, ...]] = {
    "q4": ("category",),
    "q15": ("day",),
    "q16": ("channel", "day"),
    "q17": ("auction", "day"),
    "q18": ("bidder", "auction"),
    "q19": ("auction", "rank"),
}
"""Queries whose pipelines write updates: of the records with the same of these columns the last one counts."""


def milliseconds(stamp: str) -> int:
    """The time that a JSON record has as text."""
    return round(datetime.fromisoformat(stamp).timestamp() * 1000)


def load(events: Iterable[Event]) -> sqlite3.Connection:
    """A database with the events; `number` is the order of their arrival, `arrived` their Kafka timestamp."""
    database = sqlite3.connect(":memory:")
    for name, columns in TABLES.values():
        database.execute(f"create table {name} (number integer primary key, arrived integer, {', '.join(columns)})")
    for event in events:
        name, columns = TABLES[event.kind]
        row = (round(event.arrived.timestamp() * 1000), *(plain(column, event.value[column]) for column in columns))
        database.execute(
            f"insert into {name} (arrived, {', '.join(columns)}) values ({', '.join('?' * len(row))})", row
        )
    for name, column in (("person", "id"), ("auction", "id"), ("auction", "seller"), ("side_input", "key")):
        database.execute(f"create index {name}_{column} on {name} ({column})")
    return database


def plain(column: str, value: Any) -> Any:
    """As SQLite has it: times in milliseconds."""
    return milliseconds(value) if column in TIMES else value


def query(database: sqlite3.Connection, name: str) -> tuple[tuple[str, ...], list[Row]]:
    """Columns and sorted rows of a query."""
    cursor = database.execute(QUERIES[name])
    return tuple(column[0] for column in cursor.description), sorted(cursor.fetchall(), key=json.dumps)
