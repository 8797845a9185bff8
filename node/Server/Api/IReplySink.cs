namespace KvCluster.Node.Api;

/// <summary>Takes the one outcome of a call, on any thread. Implemented for unary calls and for calls of an exchange.</summary>
internal interface IReplySink
{
    void Answer<T>(scoped in T answer)
        where T : IAnswer, allows ref struct;

    void Refuse(Refusal refusal);
}
