using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.Wire;

namespace KvCluster.Node.Api;

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
