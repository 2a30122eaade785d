"""Holds VERBS.md against the client: each row has its function, each function its row."""

import inspect
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import penstock  # noqa: E402
from penstock import values  # noqa: E402
from penstock.client import Client, Pipeline  # noqa: E402

PAGE = (HERE.parents[1] / "VERBS.md").read_text()
EVERY = {"deadline", "level"}
#: Verbs that are no operation on keys: they have no level, some no deadline.
PLAIN = {"resolve": {"deadline"}, "ping": {"deadline"}, "info": {"deadline"},
         "schema": {"deadline"}, "new_token": set(), "pipeline": set(), "close": set()}
WRITES = {"set", "delete", "set_expiry", "update_if", "apply", "run"}


def rows(section):
    """The cells of the table of a section, without its head."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names(cell):
    return re.findall(r"`(\w+)`", cell)


def parameters(function):
    found = inspect.signature(function).parameters.values()
    positional = [each.name for each in found
                  if each.kind is each.POSITIONAL_OR_KEYWORD and each.name != "self"]
    return positional, {each.name for each in found if each.kind is each.KEYWORD_ONLY}


class Package(unittest.TestCase):
    def test_the_wheel_is_built_without_a_tool_and_holds_the_package(self):
        sys.path.insert(0, str(HERE.parent / "packaging"))
        import penstock_build

        with tempfile.TemporaryDirectory() as folder:
            name = penstock_build.build_wheel(folder)
            self.assertEqual(penstock_build.build_wheel(folder), name)
            words = [sys.executable, "-c", "import penstock; print(penstock.__file__)"]
            said = subprocess.run(words, env={"PYTHONPATH": f"{folder}/{name}"}, cwd=folder,
                                  capture_output=True, text=True, check=True).stdout
            self.assertIn(name, said)

    def test_the_package_has_at_most_4000_lines_of_100_columns(self):
        sources = [*(HERE.parent / "penstock").glob("*.py"),
                   *(HERE.parent / "packaging").glob("*.py")]
        lines = [line for path in sources for line in path.read_text().splitlines()]
        self.assertLessEqual(len(lines), 4000)
        self.assertLessEqual(max(map(len, lines)), 100)


class Table(unittest.TestCase):
    def test_each_verb_has_its_arguments_in_both_clients(self):
        self.assertGreater(len(rows("Verbs")), 10)
        for verb, positional, options, *_ in rows("Verbs"):
            verb, = names(verb)
            expected = set(names(options)) | PLAIN.get(verb, EVERY)
            expected |= {"token"} if verb in WRITES else set()
            for client in (Client, penstock.aio.AsyncClient):
                if (verb, client) == ("pipeline", penstock.aio.AsyncClient):
                    continue
                self.assertEqual(parameters(getattr(client, verb)), (names(positional), expected),
                                 f"{verb} of {client.__name__}")

    def test_each_function_of_a_client_has_a_row(self):
        told = {names(row[0])[0] for row in rows("Verbs")} | {"connect", "layouts", "programs"}
        for client in (Client, penstock.aio.AsyncClient, Pipeline):
            public = {name for name in dir(client) if not name.startswith("_")}
            self.assertEqual(public - told - ({"send"} if client is Pipeline else set()), set())

    def test_a_pipeline_has_each_verb_on_keys(self):
        verbs = {names(row[0])[0] for row in rows("Verbs")} - set(PLAIN) - {"scan"}
        for verb in verbs | {"resolve"}:
            self.assertEqual(parameters(getattr(Pipeline, verb)), parameters(getattr(Client, verb)))

    def test_each_answer_has_its_members(self):
        kinds = {"Value": penstock.Value, "Expiry": penstock.Expiry, "Changed": penstock.Changed,
                 "Entry (of `scan`)": penstock.PageEntry, "Version": penstock.Version}
        told = {row[0]: names(row[1]) for row in rows("Answers")}
        self.assertEqual(set(told), set(kinds))
        for name, kind in kinds.items():
            members = getattr(kind, "_fields", None) or kind.__slots__
            self.assertEqual(set(told[name]), set(members) - {"named"}, name)

    def test_each_error_has_its_class_its_members_and_whether_it_was_executed(self):
        told = {names(row[0])[0]: row for row in rows("Errors")}
        classes = {name for name, each in vars(penstock.errors).items()
                   if inspect.isclass(each) and issubclass(each, penstock.PenstockError)}
        self.assertEqual(classes - {"PenstockError"}, set(told))
        no = penstock.No("EXISTS", 0, None, None, values.Version(1, 1), None)
        for name, row in told.items():
            kind = getattr(penstock, name)
            executed = {"no": "no", "perhaps": "unknown"}[row[1]]
            self.assertEqual(kind.is_executed, executed, name)
            error = no if name == "No" else kind("text")
            for member in names(row[3]):
                self.assertTrue(hasattr(error, member), f"{name}.{member}")

    def test_each_option_is_one_of_the_client(self):
        told = {names(row[0])[0]: row[1] for row in rows("Options of a client")}
        self.assertEqual(set(told), set(penstock.Options._fields) | {"addresses"})
        for name, default in penstock.Options()._asdict().items():
            written = {True: "on", False: "off", None: "none", 5.0: "5 s", 0.4: "400 ms",
                       "disk": "`disk`"}
            if name != "name":
                self.assertEqual(told[name], written[default], name)

    def test_each_docstring_is_there(self):
        for module in (penstock, penstock.aio, penstock.fields, penstock.layouts):
            self.assertTrue(module.__doc__)
        for kind in [each for each in vars(penstock).values() if inspect.isclass(each)]:
            self.assertTrue(inspect.getdoc(kind), kind)
            for name, member in vars(kind).items():
                if inspect.isfunction(member) and not name.startswith("_"):
                    self.assertTrue(member.__doc__, f"{kind.__name__}.{name}")


if __name__ == "__main__":
    unittest.main()
