namespace Grpc.Shared;

/// <summary>In a status of RESOURCE_EXHAUSTED, as what caused it: a message that came is larger than the limit, plain or decompressed.</summary>
internal sealed class MessageTooLargeException(string text) : Exception(text);
