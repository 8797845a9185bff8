namespace KvCluster.Node.Api;

/// <summary>Takes the one outcome of a call, on any thread. Implemented for unary calls and for calls of an exchange.</summary>
internal interface IReplySink
{
    /// <summary>An answer with more bytes is refused: whoever makes one in pieces need not go on.</summary>
    int ReplyBytesMax { get; }

    /// <summary>Takes an answer. Not null: there was no room for it, and the call was refused so.</summary>
    Refusal? Answer<T>(scoped in T answer)
        where T : IAnswer, allows ref struct;

    void Refuse(Refusal refusal);
}
