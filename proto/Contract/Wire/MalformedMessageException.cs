namespace KvCluster.Wire;

/// <summary>The bytes of a request are not an encoded message.</summary>
internal sealed class MalformedMessageException() : Exception(Text)
{
    /// <summary>The message for the caller, whichever reader detected it.</summary>
    public const string Text = "The request is not a valid encoding of the method's message; nothing was applied. Encode it as the method's .proto file defines.";

    /// <summary>The message for the caller of an exchange, if the stream's own message is malformed.</summary>
    public const string StreamText = "The stream was ended because a message is not an encoded ExchangeRequest. Its unanswered calls may have been applied; repeat them on a new stream, changes with the same request ids.";
}
