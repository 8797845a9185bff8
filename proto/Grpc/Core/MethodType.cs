namespace Grpc.Core;

/// <summary>The four kinds of calls.</summary>
internal enum MethodType
{
    Unary,
    ClientStreaming,
    ServerStreaming,
    DuplexStreaming,
}
