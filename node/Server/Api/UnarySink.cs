using KvCluster.ServiceDefaults.Memory;
using KvCluster.Wire;

namespace KvCluster.Node.Api;

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
