"""Sensitive files: those that hold secrets, and those that make programs run code.

A definition and arguments come in; the first sensitive path among them goes out. Only words are compared: files are not
looked at.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from callgate.permission.call_paths import RunningValues, paths_of, rooted, unsure_paths_of
from callgate.permission.patterns import AnyPath
from callgate.types import ToolDefinition

__all__ = ["RUNS_CODE", "SENSITIVE", "is_sensitive", "path_matcher", "sensitive_path"]

SENSITIVE: tuple[str, ...] = (
    # Settings that hold secrets.
    ".env*", "*.env", ".envrc", "credentials", "credentials.*", "*credentials*.json", "secrets", "secrets.*", "secret.*",
    "*secret.json", "*secrets.json", "*secret.yaml", "*secrets.yaml", "*secret.yml", "*secrets.yml", "*secret.toml",
    "*secrets.toml", "*secret.txt", "*secrets.txt", "client_secret*.json", "*service-account*.json",
    "*service_account*.json", "*.tfstate", "*.tfstate.*", "*.tfvars",
    ".netrc", "_netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".git-credentials", ".dockercfg", ".pgpass",
    "passwords", "passwords.*", "password.txt", "*passwords.txt", "*passwords.csv",
    "*.htpasswd", "oauth_creds.json", "**/.codex/auth.json", "auth.json",
    ".my.cnf", ".mylogin.cnf", ".htpasswd", ".s3cfg", ".boto", ".vault-token", ".terraformrc", "**/.m2/settings.xml",
    "**/.cargo/credentials*", "**/.gem/credentials", "**/.composer/auth.json", "wp-config.php", "token.json",
    # Keys, and copies of them.
    "*.pem", "*.key", "*.pem.*", "*.key.*",
    "*.p12", "*.pfx", "*.p8", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.ovpn", "*.gpg", "*.asc",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*_rsa", "*_dsa", "*_ecdsa", "*_ed25519", "authorized_keys",
    "known_hosts", "wallet.dat",
    # Folders of secrets.
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", "**/.config/gcloud", ".gcloud", ".password-store",
    "**/.config/gh", "**/.config/hub", "**/.config/op", "**/rclone/rclone.conf", "**/huggingface/token",
    "**/.huggingface/token", "*.keyring", "*.keychain", "*.keychain-db", "logins.json", "Login Data",
    # callgate's own files: keys, sessions, tools and servers that it starts.
    ".callgate.toml", "callgate.toml", "**/.config/callgate", "**/.local/state/callgate", "mcp.json", ".mcp.json",
    "mcp.lock", ".mcp.lock",
    ".git",
    # What was run.
    ".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history",
    # What a system keeps for itself, and the short names that one file system has for the above.
    "//etc/shadow", "//etc/gshadow", "//etc/sudoers", "//proc", "env~?*", "ssh~?*", "git~?*", "aws~?*",
)  # fmt: skip
"""Patterns of files that are asked about whatever the rules and the mode say, and that no search looks into unasked."""

RUNS_CODE: tuple[str, ...] = (
    # Files of callgate and of other agents, which start servers and decide what is asked about.
    ".callgate", "policy.toml", "mcp_config.json", "mcp-servers.json", "audit.jsonl", "audit.jsonl.*", ".gemini", ".claude",
    ".claude.json", ".codex", ".cursor", ".cursorrules", ".aider*", ".continue", ".windsurf", ".amazonq", ".roo", ".zed",
    "AGENTS.md", "CLAUDE.md", "GEMINI.md",
    # Editors and their containers.
    ".vscode", ".idea", ".fleet", "*.code-workspace", ".devcontainer", ".devcontainer.json", ".vimrc", ".exrc", ".nvimrc",
    "**/.config/nvim", ".emacs", ".emacs.d", ".dir-locals.el", ".editorconfig",
    # Hooks and pipelines.
    "**/.github/workflows", "**/.github/actions", ".gitlab-ci.yml", ".circleci", ".travis.yml", "Jenkinsfile",
    "azure-pipelines.yml", ".buildkite", ".drone.y*ml", ".woodpecker*", "**/.gitea/workflows", "**/.forgejo/workflows",
    "bitbucket-pipelines.yml", "appveyor.yml", ".appveyor.yml", "cloudbuild.y*ml", "buildspec.y*ml", ".cirrus.y*ml",
    ".husky", ".githooks", ".pre-commit-config.yaml",
    ".pre-commit-hooks.yaml", "lefthook.yml", ".lefthook.yml", ".gitconfig", ".gitmodules", ".gitattributes", ".hgrc",
    "hgrc",
    "**/.config/git",
    # Shells and the start of a session.
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile",
    ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".inputrc", ".xprofile", ".xinitrc", ".xsessionrc",
    ".tmux.conf", ".screenrc", "**/.config/fish", "**/.config/autostart", "**/.config/systemd", "**/LaunchAgents", "crontab",
    "**/cron.d", ".direnv", ".tool-versions", ".mise.toml", "mise.toml", "//etc",
    # Builds and tests.
    "Makefile", "GNUmakefile", "*.mk", "justfile", "Rakefile", "Gruntfile*", "gulpfile*", "Taskfile.y*ml", "CMakeLists.txt",
    "build.rs", "**/.cargo/config*", "build.gradle*", "settings.gradle*", "pom.xml", "package.json", ".yarnrc",
    ".pnpmfile.cjs", "binding.gyp", "setup.py", "setup.cfg", "pyproject.toml", "tox.ini", "noxfile.py", "conftest.py",
    "pytest.ini", "sitecustomize.py", "usercustomize.py", "*.pth", ".pythonrc", ".pythonstartup", "Dockerfile*",
    ".pdbrc", ".gdbinit", ".lldbinit", ".irbrc", ".pryrc", ".psqlrc", ".sqliterc", ".Rprofile", "Containerfile*",
    "configure", "configure.ac", "meson.build", "BUILD", "BUILD.bazel", "WORKSPACE", "WORKSPACE.bazel", "MODULE.bazel",
    "composer.json", "deno.json*", "mix.exs", "rebar.config", "dune", "stack.yaml", "build.sbt", "build.zig",
    "webpack.config.*", "vite.config.*", "jest.config.*", "eslint.config.*", ".eslintrc*", "babel.config.*",
    "docker-compose*.y*ml", "compose*.y*ml", "Vagrantfile", "Gemfile", "Podfile", "Package.swift",
    "Cargo.toml", "flake.nix", "shell.nix", "default.nix", "Procfile", "bunfig.toml", "*.service", "*.timer",
)  # fmt: skip
"""Patterns of files that make programs run code: writing one is asked about whatever the rules and the mode say."""


_COPY = re.compile(r"(?i:(?:\.(?:bak|backup|old|orig|save|saved|copy|swp|tmp|[0-9]{1,14})|~)[0-9]{0,4}){1,3}[/\\]?$")
"""The endings that editors and people give the name of a copy."""


def sensitive_path(
    definition: ToolDefinition,
    args: Mapping[str, Any],
    patterns: tuple[str, ...] = SENSITIVE,
    runs_code: tuple[str, ...] = RUNS_CODE,
    running: RunningValues | None = None,
) -> str | None:
    """The first argument that names a sensitive file; None if there is none, or if the tool is the program's own.

    Files that make programs run code count for tools that may write.
    """
    patterns += () if definition.read_only else runs_code
    if definition.kind not in ("file", "mcp", "worker") or not patterns:
        return None
    is_sensitive = path_matcher(patterns, tuple(definition.roots))
    paths = paths_of(definition, args, running, may_match=is_sensitive.known.may_match_in)
    if (found := next(filter(is_sensitive, paths), None)) is not None:
        return found
    unsure = unsure_paths_of(definition, args, running)
    if unsure is None:
        return "one of many paths with wildcards"
    return next(filter(is_sensitive.known.may_be_listed, unsure), None)


def is_sensitive(path: str) -> bool:
    """True if a path is likely to hold secrets or give power: `.env`, keys, `.ssh/` and the others of `SENSITIVE`."""
    return path_matcher(SENSITIVE)(path)


class PathMatcher:
    """A test for paths that one of the patterns names, read widely; copies (`.env~`, `x.p12.bak`) count as the file.

    Relative paths start at `roots`, if these are known: absolute patterns hold for them too.
    """

    def __init__(self, patterns: tuple[str, ...], roots: tuple[str, ...] = ()) -> None:
        self.known = AnyPath(patterns)
        self._roots = roots

    def __call__(self, path: str) -> bool:
        """True if a pattern names the path, or the file that it is a copy of."""
        return self._fits(path) or ((original := _COPY.sub("", path)) != path and self._fits(original))

    def _fits(self, path: str) -> bool:
        return self.known.wide(path) or any(map(self.known.wide_at, rooted(self._roots, path)))


path_matcher = functools.lru_cache(maxsize=64)(PathMatcher)
