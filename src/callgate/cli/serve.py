"""`callgate serve`: the service on a port of this machine.

Options come in; a running service goes out, and the exit code when a signal has ended it. The token comes from the
environment or from a file, never from the command line, where others could read it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import ipaddress
import logging
import os
import secrets
import socket
import stat
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from callgate.cli.escaping import one_line
from callgate.cli.json_input import InputError
from callgate.cli.options import (
    API_NAMES,
    APPROVAL_MODES,
    CALL_MODES,
    PROVIDER_NAMES,
    SECONDS,
    set_option,
    store_option,
)
from callgate.cli.serve_workers import LISTEN_VARIABLE, follow_parent, peers_of_parent
from callgate.config.known_secrets import remember_secrets

if TYPE_CHECKING:
    from callgate.cli.provider import ProviderChoice
    from callgate.config import Settings
    from callgate.models import Mode as CallMode
    from callgate.permission import AuditLog, Mode
    from callgate.run.gate import Gate
    from callgate.store import Store
    from callgate.types import Limits

__all__ = ["serve"]

PORT = 8081
TOKEN_VARIABLE = "CALLGATE_TOKEN"
TOKEN_CHARS_MIN = 16
FILES_MAX = 16_384
FILES_OWN_MIN = 64
"""Open files for other things than connections of clients: the store, models, MCP servers, workers, logs."""
SERVICES_MAX = 64
_PR_SET_DUMPABLE = 4
SESSION_WAIT_S = 0.5
"""A client waits better than a server: a session that another process holds is answered with 409 soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the command line."""

    host: str
    port: int
    tool: tuple[str, ...]
    tool_workers: str | None
    root: str | None
    mcp: tuple[str, ...]
    provider: str | None
    model: str | None
    mode: CallMode
    api: str | None
    system: str | None
    approval_mode: Mode | None
    policy: str | None
    audit: str | None
    store: str | None
    ephemeral: bool
    token_file: str | None
    no_token: bool
    access: str | None
    access_log: str | None
    allow_model: tuple[str, ...]
    endpoint: tuple[str, ...]
    tls_cert: str | None
    tls_key: str | None
    unix_socket: str | None
    workers: int
    allow_host: tuple[str, ...]
    allow_origin: tuple[str, ...]
    runs: int
    drain_s: float
    stop_s: float
    debug: bool
    settings: Settings
    """All other settings of files, the environment and `--set`."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; any other needs a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="The port; 0 picks a free one.")
@click.option("-T", "--tool", multiple=True, metavar="TOOL", help="module, module:fn, file.py or file.py:fn; repeatable.")
@click.option("--root", metavar="DIR", help="Folder that the file tools work in; without it there are none.")
@click.option("--mcp", multiple=True, metavar="FILE", help="A file with mcpServers, whose tools can be called; repeatable.")
@click.option("--provider", type=click.Choice(PROVIDER_NAMES), help="Provider of the model if a request names none.")
@click.option("-m", "--model", metavar="NAME", help="The model that answers when a request names none.")
@click.option("--mode", type=click.Choice(CALL_MODES), help="Declaration of tools, as in `callgate chat`.")
@click.option("--api", type=click.Choice(API_NAMES), help="The API of Gemini to use.")
@click.option("--system", metavar="TEXT", help="A system instruction for all conversations.")
@click.option("--approval-mode", type=click.Choice(APPROVAL_MODES), help="Calls that need approval; see `chat --help`.")
@click.option("--policy", metavar="FILE", help="Rules in TOML: which calls are allowed, need approval, or are denied.")
@click.option("--audit", metavar="FILE", help="Record every call in this audit log.")
@store_option
@click.option("--ephemeral", is_flag=True, help="Keep conversations in memory only.")
@click.option(
    "--token-file", metavar="FILE", help=f"A file (mode 600) with the token that clients must send; or set {TOKEN_VARIABLE}."
)
@click.option("--no-token", is_flag=True, help="Let every program on this machine use the service; loopback only.")
@click.option("--access", metavar="FILE", help="Named tokens with rights, owners and limits; see `callgate token --help`.")
@click.option("--access-log", metavar="FILE", help="Write a line of JSON for each request to this file; '-' is stderr.")
@click.option("--allow-model", multiple=True, metavar="NAME", help="A model (or pattern) that may be named; repeatable.")
@click.option(
    "--endpoint",
    multiple=True,
    metavar="NAME",
    help="Serve only these: gemini, openai, anthropic, ui, mcp, page, or none; repeatable.",
)
@click.option("--tls-cert", metavar="FILE", help="Serve https with this certificate.")
@click.option("--tls-key", metavar="FILE", help="The key of the certificate, if it is in another file.")
@click.option("--unix-socket", metavar="PATH", help="Listen on a unix socket instead of a port; only this user may connect.")
@click.option(
    "--workers",
    multiple=True,
    metavar="N|PLACE",
    help="A number: processes that share the port. 'local', 'ray' or the address of a Ray cluster (ray://host:10001): where "
    "the tools of -T run. Repeatable.",
)
@click.option("--allow-host", multiple=True, metavar="NAME", help="Another host name of the service; repeatable.")
@click.option("--allow-origin", multiple=True, metavar="URL", help="The origin of a web page that may call it; repeatable.")
@click.option("--runs", type=click.IntRange(1), default=1200, show_default=True, help="Maximum number of simultaneous runs.")
@click.option(
    "--drain-s",
    type=SECONDS,
    default=0.0,
    show_default=True,
    help="Seconds to keep working after SIGTERM while /health reports `down` to load balancers.",
)
@click.option(
    "--stop-s", type=SECONDS, default=10.0, show_default=True, help="Seconds that runs may take to end after the drain."
)
@set_option
@click.option("--debug", is_flag=True, help="Log to stderr, with tracebacks.")
@click.pass_context
def serve(ctx: click.Context, **given: Any) -> None:
    """Serve conversations over HTTP: POST /api/v1/chat, a page at /, documentation at /docs."""
    from callgate.cli.logs import log_handler, start_logging
    from callgate.cli.settings import secrets_of, settled
    from callgate.cli.state import opened, store_place

    if given["ephemeral"] and given["store"] is not None:
        raise click.UsageError("--ephemeral keeps nothing, so it cannot be used with --store", ctx)
    _read_workers(ctx, given)
    _check_options(ctx, given)
    settings = settled(given)
    options = Options(**given, settings=settings)
    token = None if options.no_token or options.access is not None else token_of(options)
    if token is None and options.access is None and options.unix_socket is None:
        _check_no_token(ctx, options.host)
    is_made_up = token is None and options.access is None and not options.no_token
    token = secrets.token_urlsafe(24) if is_made_up else token
    remember_secrets(token)
    if options.access is not None and os.environ.get(TOKEN_VARIABLE) and LISTEN_VARIABLE not in os.environ:
        _say(f"{TOKEN_VARIABLE} is not used: only the tokens of the access file are accepted")
    _hide_memory()
    follow_parent()
    if options.workers > 1:
        ctx.exit(_serve_many(options, token))
    # Nobody sits before a service who would see its errors otherwise.
    start_logging(settings["log_level"] or "error", secrets=secrets_of(settings))
    if not settings["log_level"]:
        logging.getLogger("callgate.outages").setLevel("WARNING")  # When something ends that was said to fail.
    if options.access_log is not None:
        _start_access_log(options.access_log)
    if options.debug:
        logging.getLogger("uvicorn").addHandler(log_handler(secrets_of(settings)))
        logging.getLogger("uvicorn").setLevel(logging.INFO)
    chosen = {key: settings[key] for key in ("durable", "store_replica")}
    place = None if options.ephemeral else store_place(options.store)
    if chosen["store_replica"] and not (place or "").startswith(("postgresql://", "postgres://")):
        raise InputError(
            "store_replica needs a store in PostgreSQL: leave it out, or name one with --store postgresql://..."
        )
    with opened(place, chosen) as store:
        _serve(options, token, store)


def _read_workers(ctx: click.Context, given: dict[str, Any]) -> None:
    """Tell the number of service processes from the place where tools run; each may be given once."""
    numbers = [word for word in given["workers"] if word.lstrip("-").isdecimal()]
    places = [word for word in given["workers"] if word not in numbers]
    if len(numbers) > 1 or len(places) > 1:
        raise click.UsageError("--workers is given twice: use one number, and one place for the tools of -T", ctx)
    given["workers"] = int(numbers[0]) if numbers else 1
    given["tool_workers"] = places[0] if places else None
    if not 1 <= given["workers"] <= SERVICES_MAX:
        raise click.UsageError(f"--workers {numbers[0]}: use a number from 1 to {SERVICES_MAX}", ctx)
    if places and not given["tool"]:
        raise click.UsageError(f"--workers {places[0]} is about the tools of -T, and there are none", ctx)


def _check_options(ctx: click.Context, given: Mapping[str, Any]) -> None:
    """Refuse options that contradict each other."""
    if given["no_token"] and given["access"] is not None:
        raise click.UsageError("--no-token lets everybody in, so it cannot be used with --access", ctx)
    if given["token_file"] is not None and given["access"] is not None:
        raise click.UsageError("--access replaces the one token, so it cannot be used with --token-file", ctx)
    if given["tls_key"] is not None and given["tls_cert"] is None:
        raise click.UsageError("--tls-key needs --tls-cert", ctx)
    if given["workers"] > 1 and given["ephemeral"]:
        raise click.UsageError("--ephemeral keeps sessions in one process, so it cannot be used with --workers", ctx)


def _start_access_log(place: str) -> None:
    from callgate.server.access_log import start_access_log

    try:
        start_access_log(place)
    except OSError as error:
        raise click.ClickException(f"the access log cannot be written: {error}") from error


def _hide_memory() -> None:
    """Keep other processes of this user, commands of models among them, from reading keys in this one's memory."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0)


def _serve_many(options: Options, token: str | None) -> int:
    """Serve with several processes."""
    from callgate.cli.serve_workers import run_workers

    with _own_listener(options) as listener:
        shown = _shown(options, listener)
        click.echo(f"callgate serves at {shown} with {options.workers} processes; Ctrl-C stops it", err=True)
        if token is not None and token_of(options) is None:
            click.echo(f"open {shown}/#token={token} or send the token as 'Authorization: Bearer'", err=True)
        args = _worker_args(sys.argv)
        if options.tool_workers is not None:
            args += ["--workers", options.tool_workers]
        return run_workers(options.workers, listener, args, token, options.drain_s + options.stop_s)


def _worker_args(argv: list[str]) -> list[str]:
    """The arguments after `serve`, without those that only the parent needs."""
    words = argv[argv.index("serve") + 1 :]
    kept: list[str] = []
    skip = False
    for word in words:
        if not skip and not word.startswith(("--workers", "--token-file")):
            kept.append(word)
        skip = not skip and word in ("--workers", "--token-file")
    return kept


@contextlib.contextmanager
def _own_listener(options: Options) -> Generator[socket.socket]:
    """The socket of the service; the file of a unix socket goes with the process that made it."""
    is_own = LISTEN_VARIABLE not in os.environ
    with _listener(options) as listener:
        place = options.unix_socket if is_own else None
        made = None if place is None else os.lstat(place)
        try:
            yield listener
        finally:
            # Another server may have come to the place since.
            with contextlib.suppress(OSError):
                if place is not None and made is not None and os.path.samestat(os.lstat(place), made):
                    os.unlink(place)


def _listener(options: Options) -> socket.socket:
    """The socket of the service: one that the parent has opened, a unix socket, or a port."""
    inherited = os.environ.pop(LISTEN_VARIABLE, None)
    if inherited is not None:
        return socket.socket(fileno=int(inherited))
    if options.unix_socket is None:
        return _listening(options.host, options.port)
    from callgate.server.listen import unix_socket

    try:
        return unix_socket(options.unix_socket)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {options.unix_socket}: {error.strerror or error}") from error


def _shown(options: Options, listener: socket.socket) -> str:
    """The address of the service, as people and programs write it."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"{'https' if options.tls_cert else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _check_no_token(ctx: click.Context, host: str) -> None:
    """Refuse to serve without a token of the operator's where others could reach the service: one made up is in a log."""
    from callgate.server.security import is_loopback

    if not is_loopback(host):
        raise click.UsageError(
            f"--host {host} can be reached by others, so a token is needed: set {TOKEN_VARIABLE} (openssl rand -hex 16), or "
            "use --token-file or --access",
            ctx,
        )


def _serve(options: Options, token: str | None, store: Store) -> None:
    from callgate.cli.file_undo import file_undo, forget_files, prune_files
    from callgate.cli.provider import choose
    from callgate.cli.settings import limits_of, model_environment

    try:
        from callgate.server import Service
        from callgate.server.listen import serve as listen
        from callgate.server.options import ServiceOptions
    except ImportError as error:
        raise click.ClickException(
            f"the service needs {error.name}; install it with: pip install 'callgate[server]'"
        ) from error
    env, limits = model_environment(options.settings), limits_of(options.settings)
    chosen = choose(options.provider, options.model, env, limits=limits)
    gate, offers = _gate(options, chosen, store)
    if options.tls_cert is not None:
        _check_tls(options)
    connections = _connections(ServiceOptions().connections)
    service_options = ServiceOptions(
        connections=connections,
        token=token,
        identities=None if options.access is None else _identities(options.access),
        models=options.allow_model,
        peers=peers_of_parent(),
        endpoints=_endpoints(options),
        hosts=(*options.allow_host, *_names(options.host)),
        origins=options.allow_origin,
        runs=options.runs,
        drain_s=options.drain_s,
        stop_s=options.stop_s,
        keep_sessions_s=_age(options.settings, "retention.sessions"),
        keep_anonymous_s=_age(options.settings, "retention.anonymous"),
    )
    service = Service(
        gate,
        options=service_options,
        providers=_providers(options.provider or chosen.provider, env, limits),
        undo=file_undo(),
        forget=forget_files,
        prune=prune_files,
        offers=offers,
    )
    is_worker = LISTEN_VARIABLE in os.environ
    with _own_listener(options) as listener:
        if chosen.line:
            click.echo(chosen.line, err=True)
        shown = _shown(options, listener)
        if not is_worker:
            click.echo(f"callgate serves at {shown} (documentation: /docs); Ctrl-C stops it", err=True)
            if token is not None and token_of(options) is None:
                # Behind the '#' it reaches no server log; it is new each time.
                click.echo(f"open {shown}/#token={token} or send the token as 'Authorization: Bearer'", err=True)
        chosen.warm()
        listen(service, [listener], tls=None if options.tls_cert is None else (options.tls_cert, options.tls_key))


def _check_tls(options: Options) -> None:
    from callgate.server.certificate import Certificate

    assert options.tls_cert is not None
    try:
        Certificate(options.tls_cert, options.tls_key)
    except OSError as error:
        raise InputError(f"the certificate {options.tls_cert} cannot be used: {error}") from error


def _identities(path: str) -> Any:
    from callgate.errors import UsageError
    from callgate.server.access_file import AccessFile

    try:
        return AccessFile(path)
    except UsageError as error:
        raise InputError(str(error)) from error


def _endpoints(options: Options) -> tuple[str, ...]:
    from callgate.errors import UsageError
    from callgate.server.options import ENDPOINTS, ServiceOptions

    if not options.endpoint:
        return ENDPOINTS
    named = tuple(name for name in options.endpoint if name != "none")
    try:
        return ServiceOptions(endpoints=named).endpoints
    except UsageError as error:
        raise InputError(str(error)) from error


def _gate(options: Options, chosen: ProviderChoice, store: Store) -> tuple[Gate, list[object]]:
    """The gate, and the functions for MCP clients alone: resources and prompts."""
    from callgate.cli.build_chat import policy_of
    from callgate.cli.settings import limits_of, prices_of
    from callgate.cli.tools import ToolLoadError, file_tools, load_tools, mcp_tools, split_offers
    from callgate.errors import UsageError
    from callgate.run.gate import Gate

    settings = options.settings
    policy = policy_of(options.policy, options.approval_mode, settings)
    for problem in policy.problems:
        _say(problem)
    limits = limits_of(settings)
    if not settings.is_set("limits.session_wait_s"):
        limits = replace(limits, session_wait_s=SESSION_WAIT_S)
    try:
        servers = mcp_tools(options.mcp, _say, table=settings["mcp.servers"])
        named = load_tools(options.tool, options.tool_workers) if options.tool else [] if servers else list(chosen.tools())
        files = file_tools(options.root, ()) if options.root is not None else []
        named, offers = split_offers(named)
        gate = Gate(
            chosen.model,
            [*named, *files, *servers],
            mode=options.mode,
            system=options.system,
            policy=policy,
            audit=_audit(options, settings),
            store=store,
            limits=limits,
            settings=settings["settings"],
            prices=prices_of(settings),
            tools_shown=settings["tools_shown"],
            compaction=settings["compaction"],
        )
    except (ToolLoadError, UsageError) as error:
        raise InputError(str(error)) from error
    return gate, offers


def _audit(options: Options, settings: Settings) -> AuditLog | None:
    from callgate.cli.settings import audit_log
    from callgate.errors import AuditError

    log = audit_log(options.audit, settings)
    try:
        if log is not None:
            log.check()
    except AuditError as error:
        raise InputError(str(error)) from error
    return log


def _age(settings: Settings, key: str) -> float | None:
    """Return how long something is kept, in seconds; None: for ever."""
    from callgate.config.age import age_s
    from callgate.errors import UsageError

    text = settings[key]
    if text in (None, "", "never"):
        return None
    try:
        found_s = age_s(text, name=key)
    except UsageError as error:
        raise InputError(str(error)) from error
    if not found_s:
        raise InputError(f"{key} {text!r} would delete every session when it is over: use at least 1m, or never")
    return found_s


def _providers(default: str, env: Mapping[str, str], limits: Limits) -> Any:
    """The usual providers, opened as the service's own model is, and the demo; `default` is the one that answers."""
    from callgate.models.demo import DemoModel
    from callgate.server.providers import Provider, Providers, usual_providers
    from callgate.testing import answer

    demo = Provider(name="demo", open=lambda _: DemoModel(answer), default="demo", models=("demo",))
    return Providers({**usual_providers(env, limits=limits), "demo": demo}, default=default)


def token_of(options: Options) -> str | None:
    """The token that clients must send, from the file or the environment.

    Raises:
        InputError: the file can be read by others, or there is no token in it.
    """
    if options.token_file is None:
        token = os.environ.get(TOKEN_VARIABLE, "").strip() or None
        where = TOKEN_VARIABLE
    else:
        where = options.token_file
        try:
            with open(where, encoding="utf-8") as file:
                if os.name == "posix" and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                    raise InputError(f"{where} can be read by others: chmod 600 {where}")
                token = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the token cannot be read from {where}: {error}") from error
    if token is not None and (len(token) < TOKEN_CHARS_MIN or not token.isascii() or not token.isprintable()):
        raise InputError(f"the token in {where} must have at least {TOKEN_CHARS_MIN} printable ASCII characters")
    remember_secrets(token)
    return token


def _names(host: str) -> tuple[str, ...]:
    """The names that clients may call an address by."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return (host,)
    if address.is_unspecified:
        return ()
    return (f"[{address}]" if address.version == 6 else str(address),)


def _listening(host: str, port: int) -> socket.socket:
    from callgate.server.listen import listening_socket

    try:
        return listening_socket(host, port)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            from callgate.cli.error_hints import port_in_use

            raise click.ClickException(port_in_use(host, port)) from error
        raise click.ClickException(f"cannot listen on {host} port {port}: {error}") from error


def _connections(most: int) -> int:
    """Ask for as many open files as the system allows, and return how many of them may be connections."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            files = wanted if soft == resource.RLIM_INFINITY else soft
        else:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            files = wanted
    except (ImportError, OSError, ValueError):
        return most
    allowed = max(1, files - max(FILES_OWN_MIN, files // 4))
    if allowed < most:
        _say(f"at most {allowed} connections at once, because this process may have {files} open files (ulimit -n)")
    return min(most, allowed)


def _say(sentence: str) -> None:
    click.echo(f"callgate: {one_line(sentence, 1000)}", err=True)
