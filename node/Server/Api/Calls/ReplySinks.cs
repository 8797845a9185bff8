// Where the outcome of a call goes: into the replies of its exchange or into the response of a unary call, and on the way it is measured.
using KvCluster.Node.Api.Errors;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Calls;

/// <summary>Receives the outcome of a call, exactly once, on any thread. Implemented for unary calls and for calls of an exchange.</summary>
internal interface IReplySink
{
    /// <summary>Larger answers are refused, so an answer built in pieces need not be continued beyond this.</summary>
    int ReplyBytesMax { get; }

    /// <summary>Takes an answer. Not null if there was no space for it; the call was then refused with the returned error.</summary>
    ApiError? Answer<T>(scoped in T answer)
        where T : IAnswer, allows ref struct;

    /// <summary>
    /// Takes the outcome of a change that was applied. It is told whatever its size and however little space is left, because a refusal would say that nothing
    /// was applied.
    /// </summary>
    void AnswerChange<T>(scoped in T answer)
        where T : IAnswer, allows ref struct;

    void Refuse(ApiError refusal);
}

/// <summary>Passes the outcome of a call of an exchange to its replies.</summary>
internal readonly struct ExchangeSink(ExchangeReplies replies, ulong id, CallPlace place, int replyBytesMax) : IReplySink
{
    public int ReplyBytesMax => replyBytesMax;

    public ApiError? Answer<T>(scoped in T answer)
        where T : IAnswer, allows ref struct
    {
        if (answer.Size <= replyBytesMax)
            return replies.TryAnswer(id, place, answer) ? null : ApiErrors.RepliesWait;
        var refusal = ApiErrors.ReplyLarge(answer.Size);
        Refuse(refusal);
        return refusal;
    }

    public void AnswerChange<T>(scoped in T answer)
        where T : IAnswer, allows ref struct => replies.AnswerChange(id, place, answer);

    public void Refuse(ApiError refusal) => replies.Refuse(id, place, refusal.ToStatus());
}

/// <summary>Encodes the outcome of a unary call into its response. A large outcome needs space in the budget.</summary>
internal readonly struct UnarySink(MessageBytes response, CallMemory memory) : IReplySink
{
    public int ReplyBytesMax => int.MaxValue;

    public ApiError? Answer<T>(scoped in T answer)
        where T : IAnswer, allows ref struct
    {
        var bytes = answer.Size;
        if (bytes > ByteBudget.SmallBytes)
        {
            if (!memory.MayRespond(bytes) || !memory.Replies.TryTake(bytes, isSmall: false))
            {
                Refuse(ApiErrors.RepliesWait);
                return ApiErrors.RepliesWait;
            }
            response.Budgeted = bytes;
        }
        answer.WriteTo(response.Append(bytes));
        return null;
    }

    public void AnswerChange<T>(scoped in T answer)
        where T : IAnswer, allows ref struct => answer.WriteTo(response.Append(answer.Size));

    public void Refuse(ApiError refusal) => response.Error = refusal.ToStatus();
}

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
