"""The operations that an answer tells a client it may do.

The fields are bit sets. Bit n stands for Kafka's operation with the code n. Without an authorizer everybody may do
everything that there is.
"""

GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
OPERATIONS_NOT_ASKED_FOR = -2147483648
