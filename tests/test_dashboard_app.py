"""The server without a browser: what it answers, what it refuses, and that it says nothing it should not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from small_networks import branches

from dashboard.app import create_app, require_address
from dashboard.frame.routes import EXPORTS, command
from dashboard.frame.security import LOCAL, access, content_policy
from dashboard.state import simulating
from dashboard.state.configuration import Configuration
from dashboard.state.store import Store
from simulator.cli import main
from simulator.errors import InputError
from simulator.files import library, read_plan

LOCALHOST = {"Host": "127.0.0.1:8050"}


@pytest.fixture(scope="module")
def store() -> Store:
    return Store({"small": branches()})


@pytest.fixture(scope="module")
def client(store: Store) -> Iterator[FlaskClient]:
    with create_app(store).server.test_client() as client:
        yield client


def small(store: Store, **changes: object) -> Configuration:
    return replace(store.default(), devices=3, microbatches=4, **changes)  # type: ignore[arg-type]


def test_only_known_hosts_are_answered(client: FlaskClient) -> None:
    assert client.get("/", headers=LOCALHOST).status_code == 200
    assert client.get("/", headers={"Host": "localhost"}).status_code == 200
    assert client.get("/", headers={"Host": "[::1]:8050"}).status_code == 200
    for host in ("evil.example", "evil.example:8050", "127.0.0.1.evil.example"):
        assert client.get("/", headers={"Host": host}).status_code == 403
        assert client.get("/spans", headers={"Host": host}).status_code == 403


def test_a_host_given_is_answered_too(store: Store) -> None:
    client = create_app(store, hosts=("127.0.0.1", "gpu7.lan")).server.test_client()
    assert client.get("/", headers={"Host": "gpu7.lan:80"}).status_code == 200


def test_beyond_this_machine_a_token_is_asked_for_once(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    client = create_app(store, hosts=("*",), token="right").server.test_client()
    refused = ("/", "/spans", "/assets/page.js", "/?token=wrong", "/?token=", "/%1b[31mred%0aline")
    assert {client.get(path).status_code for path in refused} == {401}
    assert client.post("/_dash-update-component?token=right").status_code == 401, "an address alone moves nothing"
    answer = client.get("/?strategy=data&token=right", environ_overrides={"PATH_INFO": "//compare"})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/compare?strategy=data")
    assert "HttpOnly" in answer.headers["Set-Cookie"] and "SameSite=Lax" in answer.headers["Set-Cookie"]
    with client.get("/") as page, client.get("/assets/page.js") as script:
        assert page.status_code == script.status_code == 200, "the cookie is enough from now on"
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(refused) + 1, "a line for each"
    assert lines[0].startswith("shardscope dashboard: refused GET / from 127.0.0.1: 401 other machines can reach")
    assert "/\\x1b[31mred line from" in lines[len(refused) - 1] and "right" not in "".join(lines)


def test_only_loopback_goes_without_a_token() -> None:
    assert [access(host) for host in ("127.0.0.1", "localhost")] == [(LOCAL, "")] * 2
    assert access("127.0.0.2") == ((*LOCAL, "127.0.0.2"), "")
    assert access("::1") == (LOCAL, "")
    for host, hosts in (("gpu7.lan", (*LOCAL, "gpu7.lan")), ("fe80::1", (*LOCAL, "[fe80::1]")), ("0.0.0.0", ("*",))):
        (named, token), (_, again) = access(host), access(host)
        assert named == hosts and len(token) >= 32 and token != again


def test_every_refused_request_is_a_line(client: FlaskClient, capsys: pytest.CaptureFixture[str]) -> None:
    client.get("/spans", headers={"Host": "evil.example"})
    client.get("/nothing", headers=LOCALHOST)
    (line,) = capsys.readouterr().err.splitlines()
    assert "refused GET /spans from 127.0.0.1: 403 host 'evil.example'" in line


def test_every_answer_carries_the_policy(client: FlaskClient) -> None:
    for path in ("/", "/spans", "/assets/page.js", "/nothing"):
        with client.get(path, headers=LOCALHOST) as answer:
            headers = answer.headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy and "script-src 'self' 'sha256-" in policy
        assert "unsafe-eval" not in policy and "https:" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert "script-src 'self' 'sha256-x'" in content_policy(["'sha256-x'"])


def test_the_page_asks_nothing_of_the_network(client: FlaskClient) -> None:
    page = client.get("/", headers=LOCALHOST).get_data(as_text=True)
    assert "https://" not in page and "http://" not in page


def test_too_large_a_request_is_refused(client: FlaskClient) -> None:
    answer = client.post(
        "/_dash-update-component", data=b"x" * 31_000_000, headers=LOCALHOST, content_type="application/json"
    )
    assert answer.status_code == 413


@pytest.mark.parametrize("path", ["/assets/../store.py", "/assets/%2e%2e/store.py", "/export/..%2fstore.py"])
def test_no_file_outside_the_assets_is_read(client: FlaskClient, path: str) -> None:
    answer = client.get(path, headers=LOCALHOST)
    assert "class Store" not in answer.get_data(as_text=True)


def test_an_infeasible_export_says_why(client: FlaskClient, store: Store) -> None:
    answer = client.get(
        f"/export/report.json?{small(store, strategy='data', batch_size=8).query()}&devices=64", headers=LOCALHOST
    )
    assert answer.status_code == 422 and "64" in answer.get_data(as_text=True)
    assert client.get("/export/secrets.txt", headers=LOCALHOST).status_code == 404


@pytest.mark.parametrize(
    "change", ["profile=unknown", "cluster=unknown", "strategy=unknown", "plan=gone", "devices=many"]
)
def test_an_export_of_what_is_unknown_is_no_export_of_something_else(
    client: FlaskClient, store: Store, change: str
) -> None:
    answer = client.get(f"/export/plan.json?{changed_query(small(store).query(), change)}", headers=LOCALHOST)
    assert answer.status_code == 422 and change.partition("=")[0] in answer.get_data(as_text=True)


def changed_query(query: str, change: str) -> str:
    """A query with one value changed."""
    from urllib.parse import parse_qsl, urlencode

    return urlencode(dict(parse_qsl(query)) | dict([change.split("=")]))


def test_exports_hold_the_run(client: FlaskClient, store: Store, tmp_path: Path) -> None:
    configuration = small(store)
    run = store.outcome(configuration).run
    assert run is not None

    def exported(name: str) -> str:
        answer = client.get(f"/export/{name}?{configuration.query()}", headers=LOCALHOST)
        assert answer.status_code == 200 and f'filename="{name}"' in answer.headers["Content-Disposition"]
        return answer.get_data(as_text=True)

    assert json.loads(exported("report.json"))["step_s"] == run.report.step_s
    (tmp_path / "plan.json").write_text(exported("plan.json"))
    assert read_plan(tmp_path / "plan.json") == replace(run.plan, command=command(store.outcome(configuration)))
    assert len(exported("tasks.csv").splitlines()) == 1 + len(run.graph)
    assert len(json.loads(exported("trace.json"))["traceEvents"]) >= len(run.graph)
    compile(exported("repeat.py"), "repeat.py", "exec")
    page = exported("report.html")
    assert "Plotly.newPlot" in page and run.report.model in page and 'class="drawn' in page and ".drawn text {" in page


def test_a_step_that_is_counted_or_refused_is_exported_as_far_as_it_goes(
    client: FlaskClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What refuses it names Export > command.sh."""

    def exported(configuration: Configuration, name: str) -> tuple[int, str]:
        answer = client.get(f"/export/{name}?{configuration.query()}", headers=LOCALHOST)
        return answer.status_code, answer.get_data(as_text=True)

    counted = Configuration(profile="gpt2", cluster="dgx-h100", strategy="data", devices=8, batch_size=8)
    whole = store.outcome(replace(counted, seed=8)).report
    monkeypatch.setattr(simulating, "MOST_TASKS", 10)
    assert store.outcome(counted).counted is not None and whole is not None
    assert json.loads(exported(counted, "report.json")[1]) == json.loads(json.dumps(whole.to_dict()))
    assert json.loads(exported(counted, "plan.json")[1])["command"] == exported(counted, "command.sh")[1].strip()
    assert exported(counted, "trace.json") == (422, f"{whole.tasks:,} tasks are too many to draw")
    refused = replace(small(store, strategy="layerwise", batch_size=64, inter_bandwidth=2.0), devices=64)
    assert "the command under Export" in store.outcome(refused).reason
    status, words = exported(refused, "command.sh")
    assert status == 200 and "--strategy layerwise" in words and "--bandwidth inter=" in words
    assert exported(refused, "plan.json")[0] == 422


def test_spans_come_as_bytes(client: FlaskClient, store: Store) -> None:
    answer = client.get(f"/spans?{small(store).query()}", headers=LOCALHOST)
    assert answer.status_code == 200 and answer.mimetype == "application/octet-stream"
    assert int.from_bytes(answer.data[:4], "little") % 8 == 4


@pytest.mark.skipif("vgg_small" not in library(), reason="the library has no profile vgg_small")
def test_the_command_repeats_the_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import shlex

    from simulator.files import read_profile

    store = Store({"vgg_small": read_profile("vgg_small")})
    configuration = replace(
        store.default(), strategy="pipeline", microbatches=4, schedule="gpipe", inter_bandwidth=0.5, inter_latency=2.0,
        speed=2.0, optimizer="adam", seed=3, batch_size=64,
    )  # fmt: skip
    outcome = store.outcome(configuration)
    assert outcome.run is not None
    words = shlex.split(command(outcome))
    assert words[:3] == ["shardscope", "simulate", "vgg_small"]
    assert main([*words[1:], "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    (tmp_path / "plan.json").write_text(EXPORTS["plan.json"][2](outcome))
    assert main(["explain", str(tmp_path / "plan.json"), "--json"]) == 0  # its command says on what
    assert f'"step_s": {printed["step_s"]}' in capsys.readouterr().out
    assert printed["step_s"] == pytest.approx(outcome.run.report.step_s, rel=1e-9)
    assert printed["peak_memory_bytes"] == outcome.run.report.peak_memory_bytes


def test_hostile_names_stay_text(store: Store) -> None:
    from dashboard.figures.standalone import Section, standalone
    from simulator.workload import Profile

    name = "</script><script>alert(1)</script>"
    nasty = replace(branches().layers[0], name=name, inputs=())
    profile = Profile(model=name, device=name, batch_size=8, layers=(nasty,))
    outcome = Store({"x": profile}).outcome(
        replace(store.default(), profile="x", strategy="data", devices=2, microbatches=1)
    )
    assert outcome.run is not None and outcome.cluster is not None
    page = standalone([Section(title=name, profile=profile, cluster=outcome.cluster, run=outcome.run)])
    assert "<script>alert(1)" not in page


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_refused_before_anything_starts(host: str) -> None:
    with pytest.raises(InputError, match=f"--host {host} --port 0: .*such as 127.0.0.1"):
        require_address(host, 0)
    require_address("127.0.0.1", 0)
