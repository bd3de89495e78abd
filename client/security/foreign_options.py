"""The translation of other clients' options: librdkafka's `key=value`, and properties files of Java clients with their
`sasl.jaas.config`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ...protocol.credentials.jaas import JaasMalformed, LoginModule, parse_jaas
from ...protocol.nearest import nearest
from ..foreign_names import JAVA, LIBRDKAFKA, Secret, is_secret

_FAMILIES: Final = ("ssl.", "sasl.", "security.")
_JAAS: Final = "sasl.jaas.config"
_WITHOUT_EFFECT: Final = frozenset(
    {
        "ssl.protocol",
        "ssl.provider",
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
        "security.providers",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.buffer.seconds",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    }
)
"""Options of other clients that have no effect here."""
_STORE_TYPES: Final = ("ssl.truststore.type", "ssl.keystore.type")
_BEARER_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
_EXTENSION: Final = "extension_"
Given = dict[str, Any]


def of_librdkafka(properties: Mapping[str, str]) -> Given:
    """Return this library's options for options by librdkafka's names. Raises ValueError that names an unknown
    option."""
    given: Given = {}
    for name, value in properties.items():
        if name in _WITHOUT_EFFECT:
            continue
        if name not in LIBRDKAFKA or name == "oauth_cb":
            raise ValueError(_unknown(name, LIBRDKAFKA))
        _put(given, name, LIBRDKAFKA[name], value)
    return given


def of_java(properties: Mapping[str, str]) -> tuple[Given, list[str]]:
    """Return this library's options for the properties of a Java client, and the names of properties that do not
    concern connections.

    Raises ValueError that names an unknown or unsupported property.
    """
    given: Given = {}
    others: list[str] = []
    for name, value in properties.items():
        if name in JAVA:
            _put(given, name, JAVA[name], value)
        elif name == _JAAS:
            given |= _of_jaas(value)
        elif name in _STORE_TYPES:
            _check_store(name, value)
        elif name == "sasl.login.callback.handler.class":
            if value.rpartition(".")[2] != _BEARER_HANDLER:
                raise ValueError(f"{name} {value!r}: classes of Java are not run here")
        elif name in _WITHOUT_EFFECT:
            continue
        elif name.startswith(_FAMILIES):
            raise ValueError(_unknown(name, (*JAVA, _JAAS, *_STORE_TYPES)))
        else:
            others.append(name)
    return given, others


def is_about_connections(name: str) -> bool:
    """Return whether `of_java` translates or refuses the property, instead of listing it as another."""
    return name in JAVA or name.startswith(_FAMILIES)


def _put(given: Given, name: str, option: str, value: str) -> None:
    if option == "ssl_check_hostname":
        if value.lower() not in ("https", "none", ""):
            raise ValueError(f"{name} is https, or empty for no check of names, not {value!r}")
        given[option] = value.lower() == "https"
    elif option == "security_protocol":
        given[option] = value.upper()
    elif option == "sasl_token_auth":
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{name} is true or false, not {value!r}")
        given[option] = value.lower() == "true"
    elif option == "sasl_oauthbearer_extensions":
        given[option] = dict(_pair(name, pair) for pair in value.split(",") if pair)
    else:
        given[option] = Secret(value) if is_secret(option) else value


def _pair(name: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"{name} is KEY=VALUE,KEY=VALUE, and {text!r} is no such pair")
    return key.strip(), value.strip()


def _check_store(name: str, value: str) -> None:
    if value.upper() != "PEM":
        raise ValueError(
            f"{name} {value!r}: only PEM is read. keytool -exportcert -rfc, or openssl pkcs12 -in FILE -out NEW.pem, "
            "makes it of other stores"
        )


def _of_jaas(text: str) -> Given:
    try:
        modules = parse_jaas(text)
    except JaasMalformed as error:
        raise ValueError(f"{_JAAS}: {error}") from None
    if len(modules) != 1:
        raise ValueError(f"{_JAAS}: it names {len(modules)} login modules, and a client has one")
    (module,) = modules
    reader = _MODULES.get(module.name)
    if reader is None:
        known = ", ".join(_MODULES)
        raise ValueError(f"{_JAAS}: there is no login module {module.class_name!r} here; there are {known}")
    return reader(module)


def _plain(module: LoginModule) -> Given:
    return _of_user(module, ("username", "password"))


def _scram(module: LoginModule) -> Given:
    given = _of_user(module, ("username", "password", "tokenauth"))
    if module.options.get("tokenauth", "false").lower() == "true":
        given["sasl_token_auth"] = True
    return given


def _of_user(module: LoginModule, known: tuple[str, ...]) -> Given:
    _check_options(module, known)
    return {
        option: Secret(module.options[name]) if name == "password" else module.options[name]
        for name, option in (("username", "sasl_plain_username"), ("password", "sasl_plain_password"))
        if name in module.options
    }


def _bearer(module: LoginModule) -> Given:
    names = {"clientId": "client_id", "clientSecret": "client_secret", "scope": "scope"}
    plain = {name: value for name, value in module.options.items() if not name.startswith(_EXTENSION)}
    _check_options(LoginModule(module.class_name, module.flag, plain), tuple(names))
    given: Given = {
        f"sasl_oauthbearer_{names[name]}": Secret(value) if name == "clientSecret" else value
        for name, value in plain.items()
    }
    extensions = {
        name.removeprefix(_EXTENSION): value
        for name, value in module.options.items()
        if name.startswith(_EXTENSION)
    }
    return given | ({"sasl_oauthbearer_extensions": extensions} if extensions else {})


def _kerberos(module: LoginModule) -> Given:
    """Return options with the module's keytab if it has one; else the tickets of the user's cache are used."""
    _check_options(module, _OPTIONS_OF_KERBEROS)
    names = {"serviceName": "sasl_kerberos_service_name", "principal": "sasl_kerberos_principal"}
    if module.options.get("useKeyTab", "false").lower() == "true":
        names["keyTab"] = "sasl_kerberos_keytab"
    return {option: module.options[name] for name, option in names.items() if name in module.options}


_OPTIONS_OF_KERBEROS: Final = (
    "useKeyTab",
    "keyTab",
    "principal",
    "serviceName",
    "storeKey",
    "useTicketCache",
    "doNotPrompt",
)
_MODULES: Final[Mapping[str, Callable[[LoginModule], Given]]] = {
    "PlainLoginModule": _plain,
    "ScramLoginModule": _scram,
    "OAuthBearerLoginModule": _bearer,
    "Krb5LoginModule": _kerberos,
}


def _check_options(module: LoginModule, known: tuple[str, ...]) -> None:
    for name in module.options:
        if name not in known:
            raise ValueError(
                f"{_JAAS}: {module.name} has no option {name!r} here; there are {', '.join(known)}"
            )


def _unknown(name: str, known: Any) -> str:
    meant = nearest(name, known)
    return f"there is no option {name!r}; " + (
        f"did you mean {meant!r}?" if meant else f"there are {', '.join(known)}"
    )
