# SPDX-License-Identifier: Apache-2.0
"""The connector's half in the scheduler's process: what is there, what is worth loading, what is to be saved.

Threads: all methods of Scheduler are called by vLLM's scheduler thread and never wait; what asks the store is done by
two threads of ours, one for lookups, one for what follows a request's end. They share Answer objects, which are
written before their `done` is set, and queues.
Invariant: for each request that is loading there is one load in a plan, and for each that was answered True at its
end one fence in a plan; the workers answer to each exactly once.
"""
import logging
import os
import queue
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Optional

import cairnkv

from .client import Client, Watch, run_jobs
from .hints import HOLD_MS, LOOKUP_MS, SESSION_MS, Hints
from .identity import Identity
from .plan import CairnStats, Load, Plan, Save, WorkerMeta

log = logging.getLogger("vllm.cairn")

LOAD_MIN_S, LOAD_UNKNOWN_S = 0.25, 30.0


@dataclass
class Answer:
    """A lookup, asked or answered."""
    since: float
    done: bool = False
    failed: bool = False
    tokens: int = 0         # there, from the first on
    worth_tokens: int = 0   # of them: worth loading
    load_s: float = 0.0
    recompute_s: float = 0.0
    match: Optional[cairnkv.Match] = None
    dropped: bool = False   # nobody waits for it any more


@dataclass
class Request:
    """What we know of one of vLLM's requests."""
    request: Any
    hints: Hints
    space: int = -1                # number of its space; -1: not known yet
    desc: Optional[cairnkv.Desc] = None
    derive: Optional[cairnkv.Derive] = None
    keys: list[bytes] = field(default_factory=list)
    answer: Optional[Answer] = None
    blocks: list[int] = field(default_factory=list)
    saved: int = 0                 # blocks, from the first on, that need no more saving
    present: int = 0               # blocks that the store said it has
    loading: Optional[tuple[int, list[int]]] = None  # first block, ids of the engine's blocks
    saves: bool = False            # some were planned
    no_more: bool = False          # a load failed: what is missing is computed, and not looked for again
    tainted: bool = False          # weights were exchanged while it ran: its KV is of neither, and is not saved


class Scheduler:
    def __init__(self, vllm_config: Any, kv_cache_config: Any, extra: Mapping[str, Any]) -> None:
        self.identity = Identity(vllm_config, kv_cache_config, extra)
        self.client = Client(extra)
        self.stats = CairnStats()
        self.block_tokens = self.identity.groups[0].kv_cache_spec.block_size
        self.lookup_s = float(extra.get("lookup_ms", LOOKUP_MS)) / 1e3
        self.load_timeout_s = float(extra.get("load_timeout_ms", 0)) / 1e3
        self.save_all = bool(extra.get("save", True))
        self.requests: dict[str, Request] = {}
        self.ending: dict[str, Request] = {}      # ended, their blocks are still being saved
        self.spaces: dict[bytes, int] = {}        # space id -> number
        self.cost = (0.0, 0.0)
        self.plan = Plan()
        self._told: set[bytes] = set()            # spaces that were described with the cost of now; lookup thread's
        self._stats_lock = threading.Lock()
        self._lookups: queue.SimpleQueue = queue.SimpleQueue()
        self._chores: queue.SimpleQueue = queue.SimpleQueue()
        self._watch = Watch()
        self._threads = [threading.Thread(target=run_jobs, args=(work, name), name=f"cairn-{name}", daemon=True)
                         for name, work in (("lookup", self._lookups), ("chores", self._chores))]
        for thread in self._threads:
            thread.start()

    # ---- threads ----

    def _look(self, desc: cairnkv.Desc, keys: bytes, answer: Answer) -> None:
        try:
            with self._watch:
                if not answer.dropped:
                    self._match(desc, keys, answer)
        except cairnkv.CairnError as error:
            log.debug("cairn: lookup: %s", error)
            answer.failed = True
        except Exception:
            log.exception("cairn: lookup")
            answer.failed = True
        answer.done = True
        if answer.dropped:
            self._let_go(answer)

    def _match(self, desc: cairnkv.Desc, keys: bytes, answer: Answer) -> None:
        name = desc.id()
        space = self.client.space(desc, anew=name not in self._told)
        store = self.client.store()
        if space is None or store is None:
            answer.failed = True
            return
        self._told.add(name)
        match = store.match(space, keys, timeout_ms=HOLD_MS)
        answer.match = match
        answer.tokens, answer.worth_tokens = match.tokens, match.worth_tokens
        answer.load_s, answer.recompute_s = match.load_s, match.recompute_s

    @staticmethod
    def _let_go(answer: Answer) -> None:
        match, answer.match = answer.match, None
        if match is not None:
            match.release()

    def _drop_answer(self, state: Request) -> None:
        """Nobody needs the answer; the match is released by the thread that took it."""
        answer, state.answer = state.answer, None
        if answer is not None:
            answer.dropped = True
            if answer.done:
                self._lookups.put(lambda: self._let_go(answer))

    def _count(self, name: str, value: float = 1) -> None:
        with self._stats_lock:
            self.stats.add(name, value)

    # ---- a request comes ----

    def new_request(self, request: Any) -> None:
        if request.request_id in self.requests:  # a streamed input goes on
            return
        state = self.requests[request.request_id] = Request(request, Hints.read(request.kv_transfer_params))
        self._ask(state)

    def _know_keys(self, state: Request) -> bool:
        """Brings the keys up to the hashes that the request has by now. False: the space is not known."""
        if state.derive is None:
            desc = self.identity.desc(state.request.lora_request)
            if desc is None:
                return False
            state.derive = desc.derive()
            state.desc = desc
            name = desc.id()
            if name not in self.spaces:
                self.spaces[name] = len(self.spaces)
                self.plan.spaces[self.spaces[name]] = desc
            state.space = self.spaces[name]
        hashes = state.request.block_hashes
        if len(hashes) > len(state.keys):
            state.keys += state.derive.hashes([bytes(h) for h in hashes[len(state.keys):]])
        return True

    def _ask(self, state: Request) -> None:
        """Asks the store what of the request it has, if there is something to ask."""
        if state.no_more or state.request.skip_reading_prefix_cache or not self._know_keys(state) or not state.keys:
            return
        assert state.desc is not None
        self._count("lookups")
        if self._watch.stuck_s() > self.lookup_s or self.client.store() is None:
            self._count("lookups_late")
            return
        answer = state.answer = Answer(time.monotonic())
        a, b = self.cost
        desc = replace(state.desc, cost_a_s=a, cost_b_s=b)
        keys = b"".join(state.keys)
        self._lookups.put(lambda: self._look(desc, keys, answer))

    def matched(self, request: Any, computed: int) -> tuple[Optional[int], bool]:
        """Tokens beyond `computed` that shall be loaded, or None: not known yet."""
        state = self.requests.get(request.request_id)
        if state is None:
            return 0, False
        if state.answer is not None and time.monotonic() - state.answer.since > HOLD_MS / 2e3:
            self._drop_answer(state)  # the match no longer holds what it found for long
        if state.answer is None:
            self._ask(state)
        answer = state.answer
        if answer is None:
            return 0, False
        if not answer.done and time.monotonic() - answer.since <= self.lookup_s:
            return None, False
        if not answer.done or answer.failed:
            self._count("lookups_late")
            self._drop_answer(state)
            state.no_more = True
            return 0, False
        # Whole blocks; the last may be among them: vLLM computes one token of it again, for its logits.
        worth = min(answer.worth_tokens, request.num_tokens) // self.block_tokens * self.block_tokens
        return (worth - computed, True) if worth > computed else (0, False)

    def allocated(self, request: Any, blocks: Any, external: int) -> None:
        state = self.requests.get(request.request_id)
        if state is None:
            return
        answer = state.answer
        if answer is None or not answer.done:
            return
        self._count("lookup_tokens", len(state.keys) * self.block_tokens)
        self._count("found_tokens", answer.tokens)
        self._count("unworthy_tokens", answer.tokens - answer.worth_tokens)
        state.present = answer.tokens // self.block_tokens
        if external <= 0:
            self._drop_answer(state)
            return
        ids = blocks.get_block_ids()[0]
        end = min(answer.worth_tokens, request.num_tokens) // self.block_tokens
        first = end - external // self.block_tokens
        state.loading = (first, list(ids[first:end]))
        self.plan.loads[request.request_id] = Load(state.space, b"".join(state.keys[first:end]), list(ids[first:end]),
                                                   self._deadline_ms(answer))

    def _deadline_ms(self, answer: Answer) -> int:
        """A load that takes much longer than the store thinks is given up, so that computing begins."""
        limit_s = self.load_timeout_s
        if not limit_s:
            limit_s = LOAD_UNKNOWN_S
            if answer.recompute_s > 0:
                limit_s = max(LOAD_MIN_S, 2 * answer.load_s + 0.05 * answer.recompute_s)
        return max(1, int(limit_s * 1e3))

    # ---- each step ----

    def build(self, output: Any) -> Plan:
        plan = self.plan
        plan.preempted = sorted(output.preempted_req_ids or ())
        for new in output.scheduled_new_reqs:
            self._begin(new.req_id, list(new.block_ids[0]), new.num_computed_tokens)
            self._plan_saves(plan, new.req_id, new.num_computed_tokens, output)
        old = output.scheduled_cached_reqs
        for i, request_id in enumerate(old.req_ids):
            state = self.requests.get(request_id)
            if state is None:
                continue
            added = old.new_block_ids[i]
            if request_id in old.resumed_req_ids:  # after a preemption the list is whole
                self._begin(request_id, list(added[0]), old.num_computed_tokens[i])
            elif added:
                state.blocks += added[0]
            self._plan_saves(plan, request_id, old.num_computed_tokens[i], output)
        plan.prefill = self._prefill(output)
        self.plan = Plan()
        return plan

    def _begin(self, request_id: str, blocks: list[int], computed: int) -> None:
        """A request runs for the first time, or again. What lies before `computed` and is not in the store (it came
        from vLLM's own cache) is saved as well: else what follows it would have no beginning there."""
        state = self.requests.get(request_id)
        if state is not None:
            state.blocks = blocks
            state.saved = min(state.present, computed // self.block_tokens)

    def _plan_saves(self, plan: Plan, request_id: str, computed: int, output: Any) -> None:
        state = self.requests.get(request_id)
        if state is not None:
            self._save_up_to(plan, request_id, state, computed + output.num_scheduled_tokens[request_id])

    def _save_up_to(self, plan: Plan, request_id: str, state: Request, tokens: int) -> None:
        if not self.save_all or state.tainted or not self._know_keys(state):
            return
        first, end = state.saved, min(tokens // self.block_tokens, len(state.keys), len(state.blocks))
        if end <= first:
            return
        hashes = [bytes(h) for h in state.request.block_hashes[first:end]]
        plan.saves.append(Save(request_id, state.space, b"".join(state.keys[first:end]),
                               state.keys[first - 1] if first else b"", hashes, state.blocks[first:end]))
        state.saved, state.saves = end, True

    def _prefill(self, output: Any) -> tuple[int, int]:
        """What the step computes, if all of it is prefill: by it the workers measure what prefill costs."""
        spans = [(new.num_computed_tokens, new.req_id) for new in output.scheduled_new_reqs]
        old = output.scheduled_cached_reqs
        spans += list(zip(old.num_computed_tokens, old.req_ids))
        tokens = square = 0
        for begin, request_id in spans:
            count = output.num_scheduled_tokens.get(request_id, 0)
            if count < 16:
                return 0, 0
            tokens += count
            square += (begin + count) ** 2 - begin ** 2
        return tokens, square

    # ---- what the workers say ----

    def workers_said(self, output: Any) -> None:
        invalid = output.invalid_block_ids or set()
        failed = getattr(output, "failed_recving", None) or set()
        for request_id in output.finished_recving or ():
            state = self.requests.get(request_id)
            if state is None:
                continue
            if state.loading and (request_id in failed or not invalid.isdisjoint(state.loading[1])):
                first = state.loading[0]
                whole = next((i for i, block in enumerate(state.loading[1]) if block in invalid), 0)
                state.no_more, state.present = True, first + whole
            state.loading = None
            self._drop_answer(state)
        for request_id in output.finished_sending or ():
            state = self.ending.pop(request_id, None)
            if state is not None:
                self._after(state)
        meta = output.kv_connector_worker_meta
        if isinstance(meta, WorkerMeta):
            self.cost = (meta.cost_a_s, meta.cost_b_s)
            self._lookups.put(self._told.clear)

    # ---- a request ends ----

    def finished(self, request: Any, blocks: tuple[list[int], ...]) -> bool:
        """True: its blocks must stay until the workers have named it."""
        state = self.requests.pop(request.request_id, None)
        if state is None:
            return False
        self._drop_answer(state)
        if state.loading is not None:  # vLLM keeps the blocks itself until the load has ended
            return False
        # The last blocks of an answer became full after their step was planned. The last token has no KV.
        if blocks and blocks[0] and state.blocks:
            state.blocks = list(blocks[0])
            self._save_up_to(self.plan, request.request_id, state,
                             min(request.num_computed_tokens, request.num_tokens - 1))
        if not state.saves:
            self._after(state)
            return False
        self.ending[request.request_id] = state
        self.plan.fenced.append(request.request_id)
        return True

    def _after(self, state: Request) -> None:
        """What the store is told of a chain whose request has ended and whose blocks are there."""
        count = state.saved
        if count and state.desc is not None:
            self._chores.put(lambda: self._tell(state, count))

    def _tell(self, state: Request, count: int) -> None:
        assert state.desc is not None
        store, space, hints = self.client.store(), self.client.space(state.desc), state.hints
        if store is None or space is None:
            return
        chain = b"".join(state.keys[:count])
        if hints.session is not None:
            try:
                store.save(space, hints.session, chain, owner=hints.owner, tokens=count * self.block_tokens,
                           ttl_s=hints.ttl_s, pin=hints.pin, timeout_ms=SESSION_MS)
                self._count("sessions_saved")
            except cairnkv.CairnError as error:
                log.warning("cairn: session %r could not be saved: %s", hints.session, error)
                self._count("sessions_failed")
            if hints.close:
                store.session_close(hints.session, owner=hints.owner)
        store.hint(space, chain, cairnkv.Hint.CLOSE if hints.close else cairnkv.Hint.PAUSE)

    # ---- the rest ----

    def reset(self) -> bool:
        """Weights were exchanged: all that is in the store belongs to those before."""
        self.identity.bump(os.urandom(16))
        for state in self.requests.values():
            self._drop_answer(state)
            state.no_more = state.tainted = True
        return True

    def take_stats(self) -> Optional[CairnStats]:
        with self._stats_lock:
            return self.stats.take()

    def close(self) -> None:
        for work in (self._lookups, self._chores):
            work.put(None)
        for thread in self._threads:
            thread.join(timeout=5)
        self.client.close()
