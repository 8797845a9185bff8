namespace KvCluster.Wire;

/// <summary>The bytes of a request are not an encoded message.</summary>
internal sealed class MalformedMessageException() : Exception(Text)
{
    /// <summary>What a caller is told, whichever reader found it.</summary>
    public const string Text = "The request is not an encoded message of its method; nothing was applied. Encode it as the .proto file of the method says.";

    /// <summary>What the caller of an exchange is told, when it is the stream's own message.</summary>
    public const string StreamText = "What came is not an encoded ExchangeRequest, and the stream ends. Calls of it without an answer may have been applied: ask again on a new stream, for changes with the same request ids.";
}
