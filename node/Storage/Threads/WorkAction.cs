namespace KvCluster.Storage.Threads;

/// <summary>A method as a work item, made once and posted often.</summary>
internal sealed class WorkAction(Action action) : IWorkItem
{
    /// <inheritdoc/>
    public void Execute() => action();

    /// <summary>Whose method it is, for people.</summary>
    public override string ToString() => $"{action.Method.DeclaringType?.Name}.{action.Method.Name}";
}
