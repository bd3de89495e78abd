"""The operations that an answer reports as permitted to a client.

The fields are bit sets: bit n stands for Kafka's operation with code n. Without an authorizer every client may perform
every operation.
"""

GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
OPERATIONS_NOT_ASKED_FOR = -2147483648
