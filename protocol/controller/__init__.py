"""What nodes ask of each other beside replication: changes of the metadata, which its leader (the controller) decides,
and transfers of leadership, which a partition's leader begins.

A request travels as the body of `peer.ControllerRequest`, its result as that of `peer.ControllerResponse`, which also
has what all answers have in common: error code, error message and image end. The class of a request names the class of
its result, so that a type checker knows what comes back:

    class AllocateProducerIds(Request[AllocateProducerIdsResult], flexible="0+"): ...

All are version 0, and flexible, because clients may send longer texts than an int16 can count. Modules: `request` (the
roots), `brokers`, `topics`, `replicas`, `settings` (declarations), `operations` (numbers, encoding and decoding).
"""
