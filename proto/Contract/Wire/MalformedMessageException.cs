namespace KvCluster.Wire;

/// <summary>The bytes of a request are not an encoded message.</summary>
internal sealed class MalformedMessageException() : Exception(Text)
{
    /// <summary>The message for the caller, whichever reader detected it.</summary>
    public const string Text = "The request is not an encoded message of its method; nothing was applied. Encode it as the .proto file of the method says.";

    /// <summary>The message for the caller of an exchange, if the stream's own message is malformed.</summary>
    public const string StreamText = "What came is not an encoded ExchangeRequest, and the stream ends. Calls of it without an answer may have been applied: ask again on a new stream, for changes with the same request ids.";
}
