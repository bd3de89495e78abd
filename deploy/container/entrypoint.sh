#!/bin/sh
# Runs a node whose settings come from KAFKA_ variables: KAFKA_LOG_RETENTION_MS is log.retention.ms.
#
#   ottla-entrypoint broker | quorum [OPTION ...]   runs a node with these options of `ottla broker` or `ottla quorum`,
#       and with these defaults unless their variables are set:
#       node.id            OTTLA_FIRST_ID (1 for brokers, 101 for quorum nodes) + the number at the end of the
#                          host name: ottla-broker-2 is the third pod of a stateful set
#       listeners          0.0.0.0:9092 for brokers, 0.0.0.0:9093 for quorum nodes. OTTLA_PROTOCOL (PLAINTEXT) is the
#                          security protocol of a broker's listener
#       advertised...      the host name, followed by OTTLA_DOMAIN if that is set
#       log.dirs           $OTTLA_DATA/broker or $OTTLA_DATA/quorum
#       metrics.listener   0.0.0.0:9492
#   ottla-entrypoint COMMAND ...          runs `ottla COMMAND ...`
set -eu

role=${1:-broker}
host=${HOSTNAME:-$(hostname)}
case $role in
  broker) first=${OTTLA_FIRST_ID:-1} ;;
  quorum) first=${OTTLA_FIRST_ID:-101} ;;
  *) exec ottla "$@" ;;
esac

if [ -z "${KAFKA_NODE_ID:-}" ]; then
  ordinal=${host##*-}
  case $ordinal in
    '' | *[!0-9]*)
      echo "ottla-entrypoint: set KAFKA_NODE_ID: the host name $host does not end in -NUMBER" >&2
      exit 2
      ;;
  esac
  KAFKA_NODE_ID=$((first + ordinal))
fi
export KAFKA_NODE_ID
export KAFKA_LOG_DIRS="${KAFKA_LOG_DIRS:-${OTTLA_DATA:-/var/lib/ottla}/$role}"
export KAFKA_METRICS_LISTENER="${KAFKA_METRICS_LISTENER:-0.0.0.0:9492}"
if [ "$role" = broker ]; then
  export KAFKA_PROCESS_ROLES=broker
  protocol=${OTTLA_PROTOCOL:-PLAINTEXT}
  export KAFKA_LISTENERS="${KAFKA_LISTENERS:-$protocol://0.0.0.0:9092}"
  export KAFKA_ADVERTISED_LISTENERS="${KAFKA_ADVERTISED_LISTENERS:-$protocol://$host${OTTLA_DOMAIN:+.$OTTLA_DOMAIN}:9092}"
else
  export KAFKA_PROCESS_ROLES=controller
  export KAFKA_LISTENERS="${KAFKA_LISTENERS:-CONTROLLER://0.0.0.0:9093}"
fi

# Without a configuration file the environment has all settings.
[ $# -eq 0 ] || shift
exec ottla "$role" -c "${OTTLA_CONFIG:-/dev/null}" --log-json "$@"
