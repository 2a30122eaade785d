"""What the client does and decides: retries, tokens, logins, routes, outcomes, damaged answers."""

import asyncio
import os
import pathlib
import signal
import socket
import sys
import threading
import time
import unittest
import uuid
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import played  # noqa: E402

import penstock  # noqa: E402
from penstock import _items, _wire, login, tls  # noqa: E402
from penstock._core import Answers, Call, Core, Options  # noqa: E402
from penstock.errors import ProtocolError  # noqa: E402
from penstock.layouts import layout  # noqa: E402
from penstock.programs import Schema  # noqa: E402
from penstock.retry import Budget, ask_again_after  # noqa: E402
from penstock.tokens import ServerTime, new_token  # noqa: E402

HOUR_MS = 3_600_000


def earned(requests, rand=0.5):
    budget = Budget(lambda: rand)
    for _ in range(requests):
        budget.earn()
    return budget


def spend(budget):
    count = 0
    while budget.pause(0, 1, 60.0) is not None:
        count += 1
    return count


class Retries(unittest.TestCase):
    def test_ten_operations_earn_one_retry_and_ten_are_saved_at_most(self):
        for requests, retries in ((0, 0), (9, 0), (10, 1), (19, 1), (99, 9), (10_000, 10)):
            self.assertEqual(spend(earned(requests)), retries, requests)

    def test_retries_are_never_more_than_a_tenth_of_the_operations_before_them(self):
        budget, retries = Budget(lambda: 0.5), 0
        for requests in range(1, 3001):
            budget.earn()
            retries += spend(budget)
            self.assertLessEqual(retries * 10, requests)
        self.assertEqual(retries, 300)

    def test_a_pause_is_a_part_of_what_the_server_says_and_doubles_up_to_a_second(self):
        pauses = [earned(10).pause(*each, 60.0) for each in ((0, 40), (1, 40), (3, 40), (0, 0),
                                                             (9, 40), (999, 65535))]
        self.assertEqual(pauses, [0.02, 0.04, 0.16, 0.0005, 0.5, 0.5])

    def test_a_pause_that_takes_all_of_the_time_is_not_made_and_costs_nothing(self):
        budget = earned(10)
        self.assertIsNone(budget.pause(0, 40, 0.02))
        self.assertEqual(budget.pause(0, 40, 0.021), 0.02)

    def test_a_node_is_asked_who_writes_after_two_milliseconds_and_half_as_long_again(self):
        told = [round(ask_again_after(tries) * 1e6) for tries in (0, 1, 2, 3, 40)]
        self.assertEqual(told, [2000, 3000, 4500, 6750, 160_000])


class Tokens(unittest.TestCase):
    def test_a_token_is_a_uuid_of_version_7_with_its_time(self):
        token = new_token(1_800_000_000_123)
        self.assertEqual((token.version, token.variant), (7, uuid.RFC_4122))
        self.assertEqual(token.int >> 80, 1_800_000_000_123)
        self.assertEqual(len({new_token(5) for _ in range(1000)}), 1000)

    def test_a_server_that_is_ahead_or_behind_decides_the_time_and_drifts(self):
        here, now = [1_800_000_000_000], [0.0]
        for apart in (8 * HOUR_MS, -HOUR_MS):
            server_time = ServerTime(lambda: here[0], lambda: now[0])
            now[0] = 0.0
            server_time.note(here[0] + apart)
            self.assertEqual(server_time.now_ms(), here[0] + apart)
            now[0] = 64.0
            drift = 1000 if apart < 0 else -1000
            self.assertEqual(server_time.now_ms(), here[0] + apart + drift)
            now[0] = 1e9
            self.assertEqual(server_time.now_ms(), here[0])

    def test_a_minute_apart_and_a_server_that_does_not_say_leave_tokens_as_they_are(self):
        server_time = ServerTime(lambda: 1_800_000_000_000, lambda: 0.0)
        for told in (0, 1_800_000_060_000, 1_799_999_940_000):
            server_time.note(told)
            self.assertEqual(server_time.now_ms(), 1_800_000_000_000)


class Logins(unittest.TestCase):
    NONCE = "rOprNGfwEbeRWgbNEkqO"
    CHALLENGE = ("r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
                 "s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")

    def scram(self, secret="pencil", nonce=NONCE, binding=None):
        return login.Scram(penstock.Identity("user", secret), binding, nonce)

    def test_a_login_says_what_rfc_7677_says(self):
        scram = self.scram()
        self.assertEqual(scram.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
        self.assertEqual(scram.final(self.CHALLENGE).rpartition(",")[2],
                         "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
        scram.check("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")

    def test_a_server_that_proves_nothing_is_refused(self):
        for message in ("", "v=", "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=", "e=other"):
            scram = self.scram()
            scram.final(self.CHALLENGE)
            with self.assertRaises(penstock.Unfit):
                scram.check(message)

    def test_a_challenge_out_of_bounds_or_of_another_login_is_refused(self):
        for challenge in (self.CHALLENGE.replace("4096", "4095"),
                          self.CHALLENGE.replace("4096", "1000001"),
                          self.CHALLENGE.replace("rOpr", "xOpr"), "r=" + self.NONCE, "",
                          f"r={self.NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"):
            with self.assertRaises(penstock.Unfit):
                self.scram().final(challenge)
        with self.assertRaises(penstock.Unfit):
            self.scram("penstock_key_x").final(self.CHALLENGE)

    def test_a_bound_login_names_the_binding_and_has_its_bytes(self):
        scram = self.scram(binding=b"b" * 32)
        self.assertTrue(scram.first().startswith("p=tls-exporter,,n=user"))
        self.assertTrue(scram.final(self.CHALLENGE).startswith(
            "c=cD10bHMtZXhwb3J0ZXIsLGJiYmJi"))

    def test_a_binding_follows_from_the_secret_of_the_connection_and_its_cipher(self):
        short = tls.exported(b"s" * 32, "TLS_AES_128_GCM_SHA256")
        long = tls.exported(b"s" * 48, "TLS_AES_256_GCM_SHA384")
        self.assertEqual((len(short), len(long)), (32, 32))
        self.assertNotEqual(short, tls.exported(b"t" * 32, "TLS_AES_128_GCM_SHA256"))

    def test_a_client_with_an_identity_does_not_go_on_at_a_server_without_users(self):
        with played.Played(lambda *_: None) as server, self.assertRaises(penstock.Unfit):
            penstock.connect(server.address, identity=penstock.Identity("ann", "secret"))

    def test_a_client_without_an_identity_does_not_go_on_at_a_server_with_users(self):
        hello = played.hello_body(methods=2)
        with played.Played(lambda *_: None, hello) as server, self.assertRaises(penstock.Unfit):
            penstock.connect(server.address)


def call(slot=0, is_read=False, token=True):
    made = Call(b"", slot, lambda reply: reply, 0, is_read)
    made.until = time.monotonic() + 60
    made.takes_token = token
    made.token = new_token() if token else None
    return made


def reply(status, value=b"", version=(0, 0)):
    made = _wire.Reply.refused(status, value)
    made.version = penstock.Version(*version)
    return made


class Routes(unittest.TestCase):
    def core(self, addresses=("a:1", "b:2"), **options):
        return Core(list(addresses), Options(**options))

    def hello(self, slots):
        return _wire.ServerHello(played.hello_body(slots))

    def test_slots_are_those_of_the_page(self):
        self.assertEqual(_wire.slot_of(b"foo"), 12182)
        self.assertEqual(_wire.slot_of(b"123456789"), 0x31C3)
        self.assertEqual(_wire.slot_of(b"stock:{foo}x{y}"), 12182)
        for whole in (b"{}foo", b"{foo", b"foo}", b"a{}{foo}"):
            self.assertEqual(_wire.slot_of(whole),
                             _wire.binascii.crc_hqx(whole, 0) & 16383, whole)

    def test_the_port_of_the_core_that_has_the_slot_is_asked(self):
        core = self.core()
        core.greeted(core.nodes[0], self.hello([(0, 99, 0, 71), (100, 16383, 1, 72)]))
        ports = [core.route(call(slot))[1] for slot in (0, 99, 100, 16383, None)]
        self.assertEqual(ports, [("a", 71), ("a", 71), ("a", 72), ("a", 72), ("a", 1)])
        self.assertEqual(self.core(shard_ports=False).route(call(0))[1], ("a", 1))

    def test_a_port_that_cannot_be_reached_is_passed_over_for_the_main_port(self):
        core = self.core()
        core.greeted(core.nodes[0], self.hello([(0, 16383, 0, 71)]))
        asked = call()
        core.unreachable(asked, core.nodes[0], ("a", 71), OSError("refused"))
        self.assertFalse(asked.is_settled)
        self.assertEqual(core.route(asked)[1], ("a", 1))

    def test_a_node_that_cannot_be_reached_is_passed_over_and_the_last_one_is_not_sent(self):
        core, asked = self.core(), call()
        core.unreachable(asked, core.nodes[0], ("a", 1), OSError("refused"))
        self.assertEqual(core.route(asked)[1], ("b", 2))
        core.unreachable(asked, core.nodes[1], ("b", 2), OSError("refused"))
        self.assertIsInstance(asked.error, penstock.NotSent)

    def test_the_node_that_moved_names_is_asked_at_once_if_that_is_news(self):
        core, asked = self.core(), call(slot=640)
        moved = reply("MOVED", b"partition 10 is written by node 2, c:3", (5 << 18 | 2, 0))
        self.assertEqual(core.answered(asked, moved, 0), 0.0)
        self.assertFalse(asked.is_settled)
        self.assertEqual(core.route(asked)[1], ("c", 3))
        self.assertEqual(core.answered(asked, moved, 0), 0.003)
        older = reply("MOVED", b"by node 1, a:1", (4 << 18 | 1, 0))
        core.answered(asked, older, 0)
        self.assertEqual(core.route(asked)[1], ("c", 3), "an older generation is no news")
        self.assertEqual(core.route(call(slot=0))[1], ("a", 1), "of one partition alone")

    def test_a_move_that_names_nobody_and_one_without_time_settle_the_call(self):
        core, asked = self.core(), call()
        core.answered(asked, reply("MOVED", b"nobody"), 0)
        self.assertIsInstance(asked.error, penstock.Busy)
        late = call()
        late.until = time.monotonic()
        core.answered(late, reply("NOT_PRIMARY"), 0)
        self.assertIsInstance(late.error, penstock.Busy)


class Outcomes(unittest.TestCase):
    NAMED = {"OK", "GUARD_FAILED", "NOT_FOUND", "EXISTS", "VERSION_MISMATCH", "BAD_FIELD",
             "WRONG_TYPE", "TOKEN_REUSED"}

    def test_behind_a_lost_try_only_what_a_server_says_behind_its_tokens_is_the_outcome(self):
        for status in _wire.STATUSES.values():
            asked = call()
            asked.in_doubt = True
            asked.settle(reply(status))
            is_unknown = isinstance(asked.error, penstock.Unknown)
            self.assertEqual(is_unknown, status not in self.NAMED, status)
            if is_unknown:
                self.assertEqual(asked.error.token, asked.token)

    def test_each_status_is_the_error_of_the_table(self):
        expected = {
            penstock.No: {"GUARD_FAILED", "NOT_FOUND", "EXISTS", "VERSION_MISMATCH", "NOT_KEPT"},
            penstock.Busy: {"BUSY", "DRAINING", "FULL", "MOVED", "NOT_PRIMARY"},
            penstock.DeadlineExceeded: {"DEADLINE"},
            penstock.Unknown: {"IO", "SHARD_DOWN", "INDETERMINATE", "NOREPLICAS", "TOKEN_TOO_OLD"},
            type(None): {"OK"},
        }
        for status in _wire.STATUSES.values():
            asked = call()
            asked.settle(reply(status))
            kinds = [kind for kind, names in expected.items() if status in names]
            self.assertIs(type(asked.error), (kinds or [penstock.Refused])[0], status)

    def test_a_read_and_a_write_with_a_token_are_sent_again_and_no_other(self):
        for is_read, token, again in ((True, False, True), (False, True, True),
                                      (False, False, False)):
            core = Core(["a:1", "b:2"], Options())
            asked = call(is_read=is_read, token=token)
            core.lost(asked, _wire.TOKENS, "gone")
            self.assertEqual(not asked.is_settled, again)
        core = Core(["a:1", "b:2"], Options())
        asked = call()
        core.lost(asked, 0, "gone")
        self.assertIsNone(asked.error.token, "a server without tokens got none")

    def test_a_lost_call_gets_one_try_for_nothing_of_several_nodes_and_none_of_one(self):
        for addresses, tries in ((["a:1"], 0), (["a:1", "b:2"], 1)):
            core, asked, count = Core(addresses, Options()), call(), 0
            while not asked.is_settled:
                core.lost(asked, _wire.TOKENS, "gone")
                count += 1
            self.assertEqual(count - 1, tries)

    def test_answers_that_were_not_asked_are_refused(self):
        def taken(*frames):
            answers = Answers(2)
            for each in frames:
                answers.take(_wire.read_frame(each))
            return answers

        first, second = played.item(number=0), played.item(number=1)
        self.assertEqual(taken(played.answer(1, first, second)).left, 0)
        self.assertEqual(taken(played.answer(1, second, flags=5), played.answer(1, first)).left, 0)
        for wrong in ([played.answer(1, first)], [played.answer(1, first, first)],
                      [played.answer(1, played.item(number=2), first)],
                      [played.answer(1, first, second, flags=5)],
                      [played.answer(1, first, second, flags=0)],
                      [played.frame(_wire.BATCH, 1, b"", status=0x777)]):
            with self.assertRaises(ProtocolError):
                taken(*wrong)


class DamagedAnswers(unittest.TestCase):
    STOCK = penstock.u64(0)

    def update(self, address, **options):
        with penstock.Client(address, deadline=5, **options) as db:
            return db.update_if("stock", [self.STOCK.subtract(1)])

    async def update_async(self, address, **options):
        async with penstock.aio.AsyncClient(address, deadline=5, **options) as db:
            return await db.update_if("stock", [self.STOCK.subtract(1)])

    def good(self, asked):
        return played.answer(asked.request_id, played.item(value=(9).to_bytes(8, "little")))

    def test_an_answer_that_is_cut_at_any_byte_is_unknown_with_its_token(self):
        length = len(played.answer(1, played.item(value=b"12345678")))
        cut = [0]

        class Cutting(played.Played):
            """Answers once on each connection, with the first bytes alone, and ends it."""

            def talk(self, peer, number):
                answered = set()

                def play(asked, number):
                    if number not in answered:
                        answered.add(number)
                        peer.sendall(good(asked)[: cut[0]])

                self.play = play
                super().talk(peer, number)

        good = self.good
        with Cutting(None) as server:
            for cut[0] in range(length):
                for ask in (lambda: self.update(server.address),
                            lambda: asyncio.run(self.update_async(server.address))):
                    with self.assertRaises(penstock.Unknown, msg=cut[0]) as caught:
                        ask()
                    self.assertIsNotNone(caught.exception.token)
            cut[0] = length
            self.assertEqual(self.update(server.address).numbers, [9])

    def test_an_answer_that_comes_byte_by_byte_is_read_whole(self):
        def play(asked, number):
            return [bytes([byte]) for byte in self.good(asked)]

        with played.Played(play) as server:
            self.assertEqual(self.update(server.address).numbers, [9])
            self.assertEqual(asyncio.run(self.update_async(server.address)).numbers, [9])

    def test_no_flipped_byte_of_an_answer_is_taken_for_an_answer(self):
        at = [0]

        def play(asked, number):
            said = bytearray(self.good(asked))
            said[at[0]] ^= 0x10
            return bytes(said)

        with played.Played(play) as server:
            for at[0] in range(8, 64):
                with self.assertRaises(penstock.Unknown, msg=at[0]):
                    self.update(server.address)

    def test_busy_is_sent_again_within_the_budget_and_told_without_it(self):
        busy = [0]

        def play(asked, number):
            busy[0] -= 1
            if busy[0] >= 0:
                return played.answer(asked.request_id, played.item(0x0301, b"full"), retry_ms=5)
            return played.answer(asked.request_id, played.item(value=(9).to_bytes(8, "little")))

        with played.Played(play) as server, penstock.Client(server.address) as db:
            busy[0] = 1
            with self.assertRaises(penstock.Busy):
                db.update_if("stock", [self.STOCK.subtract(1)])
            for _ in range(10):
                db.get("stock")
            busy[0] = 1
            self.assertEqual(db.update_if("stock", [self.STOCK.subtract(1)]).numbers, [9])

    def test_one_of_two_nodes_that_says_nothing_is_asked_by_ping_and_left_for_the_other(self):
        for ask in (self.update, lambda addresses: asyncio.run(self.update_async(addresses))):
            silent = played.Played(lambda asked, number: [])
            speaks = played.Played(lambda asked, number: self.good(asked))
            with silent, speaks:
                began = time.monotonic()
                self.assertEqual(ask([silent.address, speaks.address]).numbers, [9])
                self.assertLess(time.monotonic() - began, 3)
                self.assertEqual([each.opcode for each in silent.frames],
                                 [_wire.BATCH, _wire.PING])

    def test_what_an_older_server_lacks_is_refused_before_it_is_sent(self):
        with played.Played(lambda *_: None, played.hello_body(features=0)) as server:
            apply = penstock.Apply()
            apply.key("key").delete()
            with penstock.Client(server.address) as db:
                for ask in (lambda: list(db.scan("")), lambda: db.apply(apply),
                            lambda: db.get("key", with_expiry=True),
                            lambda: db.set("key", "value", expires_in=1),
                            lambda: db.set("key", "value", if_absent=True, show=True),
                            lambda: db.get("key", level="all"),
                            lambda: db.update_if("key", [self.STOCK.set(1)], token=new_token())):
                    with self.assertRaises(penstock.Refused) as caught:
                        ask()
                    self.assertEqual(caught.exception.status, "UNSUPPORTED")
            self.assertEqual(server.frames, [])

    def test_a_pipeline_of_more_than_one_frame_gives_each_call_its_own_answer(self):
        def play(asked, number):
            items = _wire.batch_items(asked.body)
            said = [played.item(value=each[16 : 16 + each[8]], number=at)
                    for at, each in enumerate(items)]
            return played.answer(asked.request_id, *reversed(said))

        with played.Played(play) as server, penstock.Client(server.address) as db:
            with db.pipeline() as many:
                later = [many.get(f"key:{number}") for number in range(5000)]
            self.assertEqual([each.result().data for each in later],
                             [f"key:{number}".encode() for number in range(5000)])
            self.assertGreater(len(server.frames), 4)


class OtherCallers(unittest.TestCase):
    """An answer reaches its own call and nobody else, and costs no connection."""

    @staticmethod
    def echo(asked, wait=0.0):
        time.sleep(wait)
        item = _wire.batch_items(asked.body)[0]
        return played.answer(asked.request_id, played.item(value=item[16 : 16 + item[8]]))

    def test_an_answer_that_comes_twice_costs_the_asyncio_client_nothing(self):
        async def ask(address):
            async with penstock.aio.AsyncClient(address) as db:
                for number in range(20):
                    self.assertEqual((await db.get(f"k{number}")).data, f"k{number}".encode())

        with played.Played(lambda asked, number: self.echo(asked) * 2) as server:
            asyncio.run(ask(server.address))
            self.assertEqual(server.connections, 1)

    def test_an_answer_that_comes_twice_reaches_no_later_call_of_the_blocking_client(self):
        with played.Played(lambda asked, number: [self.echo(asked)] * 2) as server:
            with penstock.Client(server.address) as db:
                for number in range(300):
                    self.assertEqual(db.get(f"k{number}").data, f"k{number}".encode())

    def test_a_task_that_is_cancelled_costs_the_asyncio_client_nothing(self):
        async def ask(address):
            async with penstock.aio.AsyncClient(address) as db:
                for number in range(5):
                    task = asyncio.ensure_future(db.get(f"cancelled{number}"))
                    await asyncio.sleep(0.02)
                    task.cancel()
                    self.assertEqual((await db.get(f"k{number}")).data, f"k{number}".encode())

        with played.Played(lambda asked, number: self.echo(asked, 0.04)) as server:
            asyncio.run(ask(server.address))
            self.assertEqual(server.connections, 1)

    def test_a_blocking_call_that_a_signal_ends_leaves_no_answer_behind(self):
        def end(*_):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, end)
        try:
            with played.Played(lambda asked, number: self.echo(asked, 0.1)) as server:
                with penstock.Client(server.address) as db:
                    signal.setitimer(signal.ITIMER_REAL, 0.05)
                    with self.assertRaises(KeyboardInterrupt):
                        db.get("ended")
                    for _ in range(3):
                        self.assertEqual(db.get("other").data, b"other")
                    self.assertEqual(server.connections, 2)
        finally:
            signal.signal(signal.SIGALRM, before)

    def test_a_connection_that_has_ended_meanwhile_costs_a_write_nothing(self):
        def play(asked, number):
            said = self.echo(asked)
            if number == 1:
                threading.Timer(0.02, lambda: server.peers[0].shutdown(socket.SHUT_RDWR)).start()
            return said

        class Keeping(played.Played):
            def talk(self, peer, number):
                self.peers.append(peer)
                super().talk(peer, number)

        Keeping.peers = []
        with Keeping(play) as server, penstock.Client(server.address, tokens=False) as db:
            db.set("first", "1")
            time.sleep(0.1)
            db.set("other", "2")
            self.assertEqual(server.connections, 2)

    def test_a_child_has_connections_of_its_own(self):
        loop = asyncio.new_event_loop()
        blocking = lambda db: db.get("key")  # noqa: E731
        waiting = lambda db: loop.run_until_complete(db.get("key"))  # noqa: E731
        for kind, ask in ((penstock.Client, blocking), (penstock.aio.AsyncClient, waiting)):
            with played.Played(lambda asked, number: self.echo(asked)) as server:
                db = kind(server.address)
                ask(db)
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        if kind is penstock.Client:
                            right = db.get("child").data == b"child"
                        else:
                            right = loop.run_until_complete(db.get("child")).data == b"child"
                        code = 0 if right else 2
                    finally:
                        os._exit(code)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
                self.assertEqual(server.connections, 2, kind)
                ask(db)
                self.assertEqual(server.connections, 2, "the parent goes on with its own")
        loop.run_until_complete(db.close())
        loop.close()


class EventLoops(unittest.TestCase):
    def test_a_client_serves_one_loop_after_the_other_and_not_two_at_once(self):
        def play(asked, number):
            return played.answer(asked.request_id, played.item(value=b"v"))

        with played.Played(play) as server:
            db = penstock.aio.AsyncClient(server.address)
            # Python warns of a connection whose loop is over.
            warnings.simplefilter("ignore", ResourceWarning)
            for _ in range(2):
                self.assertEqual(asyncio.run(db.get("key")).data, b"v")
            errors, begun, ends = [], threading.Event(), threading.Event()

            async def first():
                await db.get("key")
                begun.set()
                await asyncio.get_running_loop().run_in_executor(None, ends.wait)

            thread = threading.Thread(target=lambda: asyncio.run(first()))
            thread.start()
            begun.wait()
            try:
                asyncio.run(db.get("key"))
            except RuntimeError as error:
                errors.append(error)
            ends.set()
            thread.join()
            self.assertEqual(len(errors), 1)


class Layouts(unittest.TestCase):
    FIELDS = ["stock:u32@0", "price:i64be@4", "is_open:bool@12", "name:text@13",
              "id:u8[4]@21", "sizes:u16[2]@25", "buyer:{units:u8@0;bought:i8@1;=2}@29",
              "rate:f64@31"]

    def test_a_value_has_the_bytes_of_its_fields_and_is_read_back(self):
        product = layout("Product", self.FIELDS, 39)
        buyer = product().buyer
        buyer.units = 3
        made = product(stock=7, price=-2, is_open=True, name="Yeezy", id=b"ab", sizes=[1, 2],
                       buyer=buyer, rate=0.5)
        data = made.pack()
        self.assertEqual(len(data), 39 + 5)
        self.assertEqual(data[:13], b"\x07\0\0\0" + b"\xff" * 7 + b"\xfe\x01")
        read = product.unpack(data)
        self.assertEqual((read.stock, read.price, read.is_open, read.name, read.id, read.sizes,
                          read.buyer.units, read.rate),
                         (7, -2, True, "Yeezy", b"ab\0\0", [1, 2], 3, 0.5))
        self.assertEqual(product.unpack(data + b"more").stock, 7)

    def test_fields_of_the_class_are_numbers_and_a_short_value_has_the_fields_that_it_holds(self):
        product = layout("Product", self.FIELDS, 39)
        guard = product.price >= -5
        self.assertEqual((guard.operation, guard.kind, guard.offset), (8, 0x17, 4))
        self.assertEqual(product.is_open.type, "u8")
        with self.assertRaises(AttributeError):
            product.rate
        short = product.unpack(b"\1\0\0\0")
        self.assertEqual(short.stock, 1)
        with self.assertRaises(AttributeError):
            short.price

    def test_what_is_no_bool_no_text_or_no_field_is_refused(self):
        flags = layout("Flags", ["is_on:bool@0", "name:text@1"], 9)
        for wrong in (b"\2" + bytes(8), b"\1" + b"\xff" * 8):
            with self.assertRaises(ValueError):
                flags.unpack(wrong)
        with self.assertRaises(TypeError):
            flags(other=1)

    def test_a_program_takes_names_and_refuses_others(self):
        asked = []
        told = {"layouts": {"Stock": {"fields": ["left:i32@0"], "bytes": 4}}, "programs": {"take": {
            "id": "0x00000000000000ff", "keys": ["stock:Stock"],
            "arguments": ["quantity:u32 1..10", "note:u8[32]"],
            "instructions": ["stock.left >= quantity else 1", "stock.left -= quantity",
                             "when stock expires: stock.left += 1"], "returns": ["stock.left"]}}}
        schema = Schema(told, lambda *args, **kwargs: asked.append(args))
        take = schema.programs["take"]
        take(stock="s", quantity=2, note=b"n")
        self.assertEqual(asked, [("take", {"stock": "s"}, {"quantity": 2, "note": b"n"})])
        self.assertEqual(take.returns, ["stock.left", "stock.left"])
        self.assertEqual(take.signed, [True, True])
        with self.assertRaises(TypeError):
            take(stock="s", quantity=2, notes=b"n")
        with self.assertRaises(TypeError):
            take.encode({"stock": "s"}, {"quantity": 2})
        for wrong in ({}, {"layouts": {}}, {"layouts": {}, "programs": {"a": {"id": 1}}}):
            with self.assertRaises(ProtocolError):
                Schema(wrong, None)

    def test_a_token_stands_behind_the_block_and_changes_nothing_else(self):
        item = _items.keyed(_items.SET, 0, b"k", b"v")
        token = new_token()
        named = _items.with_token(item, token)
        self.assertEqual(len(named), len(item) + 32)
        self.assertEqual((named[0], named[6], named[32:48]), (48, 32, token.bytes))
        self.assertEqual(named[48:], item[16:])


if __name__ == "__main__":
    unittest.main()
