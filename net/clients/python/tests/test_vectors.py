"""Holds the codec against net/vectors: what must be accepted, and what must be refused."""

import json
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import requests as items  # noqa: E402

from penstock import _wire  # noqa: E402
from penstock.errors import ProtocolError  # noqa: E402

VECTORS = HERE.parents[2] / "vectors"
FRAME_MAX = 4096


def frame(data):
    read = _wire.read_frame(data, 0, FRAME_MAX)
    if read is None:
        raise items.Refusal("INCOMPLETE")
    return {
        "length": read.length, "opcode": read.opcode, "flags": read.flags,
        "request_id": str(read.request_id), "level_or_status": read.level_or_status,
        "slot_or_shard": read.slot_or_shard, "topology": read.topology,
        "deadline_or_retry_ms": read.deadline_or_retry_ms, "body": read.body.hex()}


def version(told):
    return {"epoch": told[0], "sequence": str(told[1])}


def reply(data):
    read = _wire.Reply(data)
    expiry = read.expiry and {"expiry_ms": str(read.expiry[0]), "time_ms": str(read.expiry[1])}
    standing = read.standing and {"age_us": str(read.standing[0]),
                                  "through": version(read.standing[1])}
    return {
        "status": read.status, "reason": read.reason, "item": read.item, "level": read.level,
        "instruction": read.instruction, "left_range": bool(read.flags & _wire.LEFT_RANGE),
        "is_shown": bool(read.flags & _wire.SHOWN),
        "is_replayed": bool(read.flags & _wire.REPLAYED), "version": version(read.version),
        "expiry": expiry, "standing": standing, "value": read.value.hex()}


def hello(data):
    read = _wire.ServerHello(data)
    names = ["protocol", "shard", "shards", "auth_methods", "frame_bytes_max", "value_bytes_max",
             "key_bytes_max", "items_max", "instructions_max", "topology", "interval_ms"]
    out = {name: getattr(read, name) for name in names}
    for name in ("cluster_id", "node_id", "nonce"):
        out[name] = getattr(read, name).hex()
    out["incarnation"], out["features"] = str(read.incarnation), str(read.features)
    out["slots"] = [dict(zip(("first", "last", "shard", "port"), each)) for each in read.slots]
    placement = read.placement
    out["placement"] = placement and {
        "version": placement.version,
        "nodes": [{"number": number, "address": address}
                  for number, address in placement.nodes.items()],
        "ranges": [dict(zip(("first", "last", "node", "generation"), each))
                   for each in placement.ranges]}
    return out


def page(data):
    cursor, entries = _wire.scan_page(data)
    return {"cursor": str(cursor), "keys": [
        {"key": each.key.hex(), "version": version(each.version),
         "value": None if each.data is None else each.data.hex(),
         "is_value_too_long": each.is_value_too_long} for each in entries]}


READERS = {
    "frame": frame,
    "batch": lambda data: {"items": [item.hex() for item in _wire.batch_items(data)]},
    "request-item": items.request_item,
    "apply-item": items.apply_item,
    "run-item": items.run_item,
    "scan-item": items.scan_item,
    "ping-item": items.ping_item,
    "instruction": items.instruction,
    "reply-item": reply,
    "scan-page": page,
    "client-hello": items.client_hello,
    "server-hello": hello,
}


def vectors(kind):
    return json.loads((VECTORS / f"{kind}.json").read_text())


class Vectors(unittest.TestCase):
    def test_every_kind_but_frames_between_nodes_has_a_reader(self):
        kinds = {path.stem for path in VECTORS.glob("*.json")}
        self.assertEqual(kinds - set(READERS), {"link-frame"})

    def test_what_must_be_accepted_has_the_fields_and_what_must_be_refused_is(self):
        counted = 0
        for kind, read in READERS.items():
            for vector in vectors(kind):
                data = bytes.fromhex(vector["hex"])
                with self.subTest(vector["id"], what=vector["description"]):
                    counted += 1
                    if vector["must"] == "reject":
                        self.assertTrue(items.refuses(read, data))
                        continue
                    decoded = dict(read(data))
                    expected = dict(vector["decoded"])
                    self.assertEqual(decoded, expected)
        self.assertGreater(counted, 500)

    def test_an_accepted_body_that_is_cut_at_any_byte_is_refused_or_says_what_it_holds(self):
        for kind in ("frame", "batch", "reply-item", "scan-page", "server-hello", "request-item",
                     "apply-item", "run-item", "scan-item", "ping-item"):
            for vector in vectors(kind):
                data = bytes.fromhex(vector["hex"])
                if vector["must"] == "reject" or kind == "server-hello" and len(data) > 400:
                    continue
                for end in range(len(data)):
                    with self.subTest(vector["id"], end=end):
                        if kind == "server-hello" and end >= 120:
                            # Later versions append fields, so what is whole in front is enough.
                            try:
                                READERS[kind](data[:end])
                            except ProtocolError:
                                pass
                            continue
                        self.assertTrue(items.refuses(READERS[kind], data[:end]))


class Session(unittest.TestCase):
    """The bytes of net/SESSION.md."""

    def read_blocks(self):
        text = (VECTORS.parent / "SESSION.md").read_text().split("```")[1]
        blocks = []
        for line in text.strip().splitlines():
            if line.startswith("  "):
                blocks[-1][1] += bytes.fromhex(line)
            else:
                blocks.append([line, b""])
        return blocks

    def test_the_client_says_the_bytes_of_the_session_and_reads_its_answers(self):
        from penstock import _items
        from penstock.fields import pack_update, u64

        blocks = self.read_blocks()
        key, stock = b"stock:42", u64(0)
        sale = pack_update([(stock >= 1).because(7), stock.subtract(1)])
        put = _items.keyed(_items.SET, 0, key, (1).to_bytes(8, "little"))
        self.assertEqual(blocks[2][1], _wire.frame(_wire.BATCH, 2, _wire.batch_body([put]), 2))
        update = _items.keyed(_items.UPDATE_IF, 0, key, b"", b"", b"", sale)
        self.assertEqual(blocks[4][1], _wire.frame(_wire.BATCH, 3, _wire.batch_body([update]), 2))
        answers = [_wire.read_frame(blocks[at][1]) for at in (1, 3, 5, 7, 9)]
        self.assertEqual(_wire.ServerHello(answers[0].body).shards, 1)
        replies = [_wire.Reply(_wire.batch_items(answer.body)[0]) for answer in answers[1:]]
        self.assertEqual([each.status for each in replies], ["OK", "OK", "GUARD_FAILED", "OK"])
        self.assertEqual((replies[2].instruction, replies[2].reason), (0, 7))
        self.assertEqual(replies[3].standing, (0, (256, 2)))

    def test_a_run_has_the_bytes_of_the_example_in_the_page(self):
        from penstock import _items
        from penstock.programs import Schema

        text = (VECTORS.parent / "RUN.md").read_text()
        example = text.split("```")[-2]
        run = bytes.fromhex("".join(example.split("RUN, of 3")[1].split("APPLY")[0].split()))
        told = {"layouts": {}, "programs": {"hold": {
            "id": example.split()[1], "keys": ["stock", "hold"],
            "arguments": ["quantity:u32 1..10"],
            "instructions": ["stock.u32@0 -= quantity", "hold.u32@4 = quantity"], "returns": []}}}
        program = Schema(told, None).programs["hold"]
        item, _ = program.encode({"stock": "stock:{7}", "hold": "hold:{7}:1"}, {"quantity": 3})
        self.assertEqual(item, run)
        self.assertEqual(program.returns, ["stock.u32@0", "hold.u32@4"])
        self.assertEqual(_items.split_numbers((5).to_bytes(8, "little"), program.signed), [5])


if __name__ == "__main__":
    unittest.main()
