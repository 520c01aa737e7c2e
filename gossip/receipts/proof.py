"""Which signed statements contradict one another, so that they convict whoever signed them.

No rule here asks what others have signed: an honest peer cannot be convicted by anybody's lie.
"""

from collections.abc import Iterable, Sequence

from .statement import Promise, Receipt, Statement, signer_of

__all__ = ["contradiction", "why_guilty"]


def contradiction(first: Statement, second: Statement) -> str:
    """Why two statements of one signer cannot both be true; empty where they can.

    Promises are ordered by their number, receipts of one link by what they have decided; whatever
    grows must not shrink. So weight that is spent twice shows as soon as both promises are known.
    """
    if isinstance(first, Promise) and isinstance(second, Promise):
        return _promises(*sorted((first, second), key=lambda each: each.number))
    if isinstance(first, Receipt) and isinstance(second, Receipt):
        if first.promise.link != second.promise.link:
            return ""
        return _receipts(*sorted((first, second), key=lambda each: (each.decided, each.accepted)))
    return ""


def _promises(early: Promise, late: Promise) -> str:
    if early.number == late.number:
        figures = early.link, early.offered, early.spent
        same = figures == (late.link, late.offered, late.spent)
        return "" if same else "signed two promises of one number"
    if late.spent < early.spent:
        return "signed totals that shrink"
    # In between, it may have sent to others, too.
    grown = late.offered - early.offered
    if early.link == late.link and not 0 <= grown <= late.spent - early.spent:
        return "signed totals of a link that do not add up"
    return ""


def _receipts(early: Receipt, late: Receipt) -> str:
    if not 0 <= late.accepted - early.accepted <= late.decided - early.decided:
        return "signed for a share twice, and differently"
    return ""


def why_guilty(statements: Iterable[Statement]) -> str:
    """Why statements convict the one who signed them all; empty where they do not.

    Args:
        statements: Of one incarnation of one peer; their signatures are checked elsewhere.
    """
    listed = tuple(statements)
    if len({signer_of(each) for each in listed}) != 1:
        return ""
    for each in listed:
        if why := _alone(each):
            return why
    for index, each in enumerate(listed):
        for other in listed[:index]:
            if why := contradiction(each, other):
                return why
    return _sum([each for each in listed if isinstance(each, Promise)])


def _alone(statement: Statement) -> str:
    if isinstance(statement, Promise):
        if not 0 < statement.offered <= statement.spent:
            return "signed that it sent more to one than to all"
        return ""
    if not 0 <= statement.accepted <= statement.decided <= statement.promise.offered:
        return "signed for more than it was sent"
    return ""


def _sum(promises: Sequence[Promise]) -> str:
    """The latest of each link, together, must not be more than the last says was spent on all."""
    if not promises:
        return ""
    latest: dict[object, int] = {}
    for each in promises:
        latest[each.link] = max(latest.get(each.link, 0), each.offered)
    if sum(latest.values()) > max(each.spent for each in promises):
        return "spent the same weight twice"
    return ""
