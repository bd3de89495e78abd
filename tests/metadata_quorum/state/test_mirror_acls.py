"""ACLs of mirrors in the controller: a mirror may remove only ACLs that it has added."""

from __future__ import annotations

import pytest

from ottla.metadata_quorum.state.mirror_acls import ACLS_MAX
from ottla.protocol.cluster.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from ottla.protocol.cluster.mirror_table import MirrorPhase
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import MIRROR, SECURITY
from ottla.protocol.messages.acl_commands import AclEntry, CreateAcls, CreateAclsResult
from ottla.protocol.messages.command import PlainResult
from ottla.protocol.messages.mirror_commands import FollowAcls
from ottla.protocol.messages.quota_commands import FeatureLevel, UpdateFeatures, UpdateFeaturesResult

from .mirrored import Mirrors, failback_of
from .test_mirror_failback import refused


def acl(name: str, principal: str = "User:ann") -> Acl:
    return Acl(
        AclResourceType.TOPIC,
        name,
        PatternType.LITERAL,
        principal,
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )


def secured(level: int = 2) -> Mirrors:
    cluster = Mirrors(0, level)
    update = UpdateFeatures(updates=[FeatureLevel(feature=SECURITY, level=1, upgrade_type=1)])
    assert not cluster.do(update, UpdateFeaturesResult).error_code
    return cluster


@pytest.fixture
def cluster() -> Mirrors:
    """Return a cluster with mirror "m", which copies ACLs."""
    cluster = secured()
    assert not cluster.create_mirror(acls=True).error_code
    return cluster


def follow(cluster: Mirrors, *acls: Acl, mirror: str = "m") -> PlainResult:
    entries = [AclEntry(**acl._asdict()) for acl in acls]
    return cluster.do(FollowAcls(mirror=mirror, acls=entries), PlainResult)


def kept(cluster: Mirrors) -> set[Acl]:
    cluster.machine.adopt(cluster.restored())  # also through a snapshot
    return cluster.machine.image.acls


def test_what_the_source_has_comes_and_goes(cluster: Mirrors) -> None:
    assert not follow(cluster, acl("a"), acl("b")).error_code
    assert kept(cluster) == {acl("a"), acl("b")}
    assert not follow(cluster, acl("b"), acl("c")).error_code
    assert kept(cluster) == {acl("b"), acl("c")}
    assert not follow(cluster).error_code
    assert kept(cluster) == set()
    assert cluster.machine.image.mirrors.acls == {}


def test_what_a_person_has_created_stays(cluster: Mirrors) -> None:
    own = CreateAcls(acls=[AclEntry(**acl("a")._asdict()), AclEntry(**acl("ours")._asdict())])
    cluster.do(own, CreateAclsResult)
    follow(cluster, acl("a"), acl("b"))
    follow(cluster)
    assert kept(cluster) == {acl("a"), acl("ours")}


def test_what_a_person_has_removed_comes_again(cluster: Mirrors) -> None:
    follow(cluster, acl("a"))
    cluster.machine.image.acls.clear()
    follow(cluster, acl("a"))
    assert kept(cluster) == {acl("a")}
    follow(cluster)
    assert kept(cluster) == set()


def test_they_stay_after_the_promotion_and_the_end_of_the_mirror(cluster: Mirrors) -> None:
    follow(cluster, acl("a"))
    cluster.promote()
    refused(follow(cluster), ErrorCode.INVALID_REQUEST, "copies no ACLs now")
    cluster.delete_mirror()
    assert kept(cluster) == {acl("a")}
    assert not cluster.machine.image.mirrors.acls


def test_only_a_mirror_that_is_to_copy_them_does(cluster: Mirrors) -> None:
    cluster.create_mirror("n")
    refused(follow(cluster, mirror="n"), ErrorCode.INVALID_REQUEST, "'n' copies no ACLs now")
    refused(follow(cluster, mirror="nosuch"), ErrorCode.RESOURCE_NOT_FOUND, "'nosuch'")
    cluster.alter(MirrorPhase.PAUSED)
    refused(follow(cluster), ErrorCode.INVALID_REQUEST, "'m' copies no ACLs now")
    many = [acl(f"t{number}") for number in range(ACLS_MAX + 1)]
    cluster.alter(MirrorPhase.ACTIVE)
    refused(follow(cluster, *many), ErrorCode.POLICY_VIOLATION, f"{ACLS_MAX} at most")


def test_what_this_cluster_cannot_have_is_left_out(cluster: Mirrors) -> None:
    follow(cluster, acl("a", "no principal"), acl("b"))
    assert kept(cluster) == {acl("b")}


def test_they_need_levels_that_all_nodes_know() -> None:
    old = secured(level=1)
    refused(old.create_mirror(acls=True), ErrorCode.UNSUPPORTED_VERSION, f"{MIRROR} at level 2")
    bare = Mirrors(0)
    refused(bare.create_mirror(acls=True), ErrorCode.UNSUPPORTED_VERSION, SECURITY)


def test_the_level_stays_while_a_mirror_copies_them(cluster: Mirrors) -> None:
    update = UpdateFeatures(updates=[FeatureLevel(feature=MIRROR, level=1, upgrade_type=2)])
    stays = cluster.do(update, UpdateFeaturesResult)
    assert stays.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "1 mirrors that copy ACLs" in stays.error_message


def test_a_failback_may_copy_them_too(cluster: Mirrors) -> None:
    command = failback_of(cluster, (), 0, "back", acls=True)
    refused(cluster.do(command, PlainResult), ErrorCode.INVALID_REQUEST, "0 partitions")
