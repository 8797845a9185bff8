namespace Grpc.Shared;

/// <summary>The cause in a status RESOURCE_EXHAUSTED: a received message is larger than the limit, as received or decompressed.</summary>
internal sealed class MessageTooLargeException(string text) : Exception(text);
