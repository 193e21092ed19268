"""A network that stalls and cuts: everything to and from the broker passes a proxy that hurts it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.night.story import Night, Result
from tests.support.kafka_proxy import PRODUCE, KafkaProxy, Request, Verdict, proxied_broker
from tests.support.rig import Rig

Rule = Callable[[Request], Verdict]

KINDS = ("stall", "cut", "drop", "lose answers", "refuse")
STALL_S_MAX = 25.0
FAULT_S_MAX = 8.0
SHARE = 0.05
"""Of the requests, where single ones are hurt."""


def run(night: Night) -> Result:
    """See the module."""
    with (
        proxied_broker(night.place / "broker") as (broker, proxy),
        Rig(broker, night.place / "rig", seed=night.seed, rate=500) as rig,
    ):
        daemon = rig.running()
        for kind in KINDS:
            night.least(kind)
        for number in night.rounds(len(KINDS)):
            kind = KINDS[(number - 1) % len(KINDS)]
            _hurt(night, proxy, kind)
            with night.recovery():
                daemon.wait_checkpoints(2)
                night.wait_more(rig)
            night.pause(0.5, 4.0)
        night.count("requests hurt", proxy.hurt)
        return night.finish(rig, daemon)


def _hurt(night: Night, proxy: KafkaProxy, kind: str) -> None:
    hurt = proxy.hurt
    match kind:
        case "stall":
            with stalled(proxy):
                night.count("seconds stalled", night.pause(1.0, STALL_S_MAX))
                waited = proxy.hurt - hurt
            happened = waited > 0
        case "cut":
            happened = proxy.cut_all() > 0
        case _:
            verdict = {"drop": Verdict.DROP, "lose answers": Verdict.CUT, "refuse": Verdict.REFUSE}[kind]
            with ruled(proxy, _some(verdict, random.Random(night.dice.random()))):
                night.pause(2.0, FAULT_S_MAX)
            happened = proxy.hurt > hurt
    night.count(kind, happened)


def _some(verdict: Verdict, dice: random.Random) -> Rule:
    """A share of all requests; of produce requests where only those can be refused."""

    def rule(request: Request) -> Verdict:
        chosen = dice.random() < SHARE and (verdict is not Verdict.REFUSE or request.api_key == PRODUCE)
        return verdict if chosen else Verdict.FORWARD

    return rule


@contextmanager
def ruled(proxy: KafkaProxy, rule: Rule) -> Iterator[None]:
    """This rule within the block."""
    before, proxy.rule = proxy.rule, rule
    try:
        yield
    finally:
        proxy.rule = before


@contextmanager
def stalled(proxy: KafkaProxy) -> Iterator[None]:
    """Requests wait until the block ends, and are then forwarded in their order."""
    over = threading.Event()

    def wait(_: Request) -> Verdict:
        proxy.hurt += 1
        over.wait(STALL_S_MAX * 2)
        return Verdict.FORWARD

    with ruled(proxy, wait):
        try:
            yield
        finally:
            over.set()
