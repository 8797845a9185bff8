namespace KvCluster.Client;

/// <summary>What all nodes say of themselves, for a <see cref="Doctor.Diagnosis"/>.</summary>
/// <param name="Status">The status of the nodes.</param>
/// <param name="Nodes">Their examinations.</param>
/// <param name="Asked">This machine's clock before the nodes were examined.</param>
/// <param name="Answered">This machine's clock when all examinations had come. Nodes' clocks are compared with it, so it does not wait for the status.</param>
internal sealed record Examined(ClusterStatus Status, IReadOnlyList<NodeExamination> Nodes, DateTimeOffset Asked, DateTimeOffset Answered)
{
    /// <summary>Asks for both at once, because each takes some seconds where a node stands still.</summary>
    /// <exception cref="KvException">No node answers.</exception>
    public static async Task<Examined> ReadAsync(KvAdmin admin, CancellationToken cancellationToken)
    {
        var asked = TimeProvider.System.GetUtcNow();
        var (examining, looking) = (ExamineAsync(admin, cancellationToken), admin.GetStatusAsync(cancellationToken: cancellationToken));
        await Task.WhenAll(examining, looking).ConfigureAwait(false);
        var (nodes, answered) = await examining.ConfigureAwait(false);
        return new Examined(await looking.ConfigureAwait(false), nodes, asked, answered);
    }

    private static async Task<(IReadOnlyList<NodeExamination> Nodes, DateTimeOffset Answered)> ExamineAsync(
        KvAdmin admin, CancellationToken cancellationToken) =>
            (await admin.ExamineAsync(cancellationToken).ConfigureAwait(false), TimeProvider.System.GetUtcNow());
}
