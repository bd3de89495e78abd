"""Quotas of clients: the amount that each client may use, and the time that a client beyond it has to wait.

`windows` measures (pure), `limits` finds the limit that applies (pure), and `client_quotas` has both for every kind of
quota. The rule: while no client has a quota of a kind, its attribute of `ClientQuotas` is None, and nothing is
measured.
"""

from .client_quotas import ClientQuotas
from .limits import Limit, QuotaLimits
from .meter import RequestMeter, Stepwise
from .rate_quota import MutationQuota, RateQuota
from .windows import MeasuredRate, MutationTokens, QuotaWindows

__all__ = [
    "ClientQuotas",
    "Limit",
    "MeasuredRate",
    "MutationQuota",
    "MutationTokens",
    "QuotaLimits",
    "QuotaWindows",
    "RateQuota",
    "RequestMeter",
    "Stepwise",
]
