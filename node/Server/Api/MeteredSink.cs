using KvCluster.Wire;

namespace KvCluster.Node.Api;

/// <summary>A sink that records the end of the call before it passes the outcome on.</summary>
internal readonly struct MeteredSink<TSink>(TSink inner, RequestWatch watch) : IReplySink
    where TSink : struct, IReplySink
{
    public int ReplyBytesMax => inner.ReplyBytesMax;

    public ApiError? Answer<T>(scoped in T answer)
        where T : IAnswer, allows ref struct
    {
        var refusal = inner.Answer(answer);
        if (refusal is null)
            watch.Answered();
        else
            watch.Refused(refusal);
        return refusal;
    }

    public void AnswerChange<T>(scoped in T answer)
        where T : IAnswer, allows ref struct
    {
        watch.Answered();
        inner.AnswerChange(answer);
    }

    public void Refuse(ApiError refusal)
    {
        watch.Refused(refusal);
        inner.Refuse(refusal);
    }
}
