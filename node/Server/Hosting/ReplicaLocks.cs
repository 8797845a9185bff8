using KvCluster.Storage.Files;

namespace KvCluster.Node.Hosting;

/// <summary>Keeps nodes away from the directory of a replica, for a tool that was given its path.</summary>
internal static class ReplicaLocks
{
    private const int LevelsMax = 2;

    /// <summary>
    /// Reserves the directories that the replica may belong to, if there are any: a node's data directory two levels above it, or an embedded store's one level
    /// above, by the path that was given and by the one that remains when all links are resolved. A bind mount shows neither.
    /// </summary>
    /// <inheritdoc cref="DirectoryLock.Take(string)" path="/exception"/>
    public static IReadOnlyList<DirectoryLock> Take(string replica)
    {
        var locks = new List<DirectoryLock>();
        try
        {
            foreach (var home in Above(replica).Select(RealPath).Concat(Above(RealPath(replica))).Distinct())
            {
                if (DirectoryLock.TakeIfUsed(home) is { } held)
                    locks.Add(held);
            }
            return locks;
        }
        catch
        {
            locks.ForEach(static held => held.Dispose());
            throw;
        }
    }

    /// <summary>The path without links. What does not exist is left as it is.</summary>
    public static string RealPath(string path)
    {
        if (Path.GetDirectoryName(path) is not { } parent)
            return path;
        var own = new DirectoryInfo(Path.Combine(RealPath(parent), Path.GetFileName(path)));
        return own.Exists && own.ResolveLinkTarget(returnFinalTarget: true) is { } target ? RealPath(target.FullName) : own.FullName;
    }

    private static IEnumerable<string> Above(string replica)
    {
        for (var (path, levels) = (Path.GetDirectoryName(replica), 0); path is not null && levels < LevelsMax; path = Path.GetDirectoryName(path), levels++)
            yield return path;
    }
}
