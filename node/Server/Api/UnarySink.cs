using KvCluster.Wire;

namespace KvCluster.Node.Api;

/// <summary>The outcome of a unary call, encoded into its response.</summary>
internal readonly struct UnarySink(MessageBytes response) : IReplySink
{
    public void Answer<T>(scoped in T answer)
        where T : IAnswer, allows ref struct => answer.WriteTo(response.Append(answer.Size));

    public void Refuse(Refusal refusal) => response.Error = refusal.ToStatus();
}
