# Runs a program of docs/other-languages.md: documented.py FILE PROGRAM, where FILE is kv.proto as a serialized FileDescriptorProto in base64, of which the
# stubs are made that the program imports, so that no compiler is needed, and PROGRAM is its text.
import base64
import sys
import types

from google.protobuf import descriptor_pool, message_factory

POOL = descriptor_pool.DescriptorPool()
POOL.AddSerializedFile(base64.b64decode(sys.argv[1]))
FILE = POOL.FindFileByName('kvcluster/v1/kv.proto')


def message_class(descriptor):
    if hasattr(message_factory, 'GetMessageClass'):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(POOL).GetPrototype(descriptor)


class KvStub:
    """What the compiler makes of the service, as far as the program calls it."""

    def __init__(self, channel):
        for method in FILE.services_by_name['Kv'].methods:
            kind = channel.unary_stream if method.name == 'Scan' else channel.unary_unary
            setattr(self, method.name, kind(
                '/kvcluster.v1.Kv/' + method.name, message_class(method.input_type).SerializeToString, message_class(method.output_type).FromString))


package, messages, stubs = (types.ModuleType('kvcluster.v1' + name) for name in ('', '.kv_pb2', '.kv_pb2_grpc'))
for name, descriptor in FILE.message_types_by_name.items():
    setattr(messages, name, message_class(descriptor))
stubs.KvStub = KvStub
package.kv_pb2, package.kv_pb2_grpc = messages, stubs
sys.modules.update({module.__name__: module for module in (types.ModuleType('kvcluster'), package, messages, stubs)})
exec(compile(sys.argv[2], 'docs/other-languages.md', 'exec'))
