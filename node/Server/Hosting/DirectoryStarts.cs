// The content of the file `starts` in a data directory: two lines, each like the coordinator's record. Pure.
using System.Globalization;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;

namespace KvCluster.Node.Hosting;

/// <summary>
/// What a data directory knows of its node's starts: the coordinator's record as its last process found it, and the one which that process put in its place.
/// It is written before the coordinator is asked, so it holds whether the coordinator has counted that start or not, and tells the directory from its copies
/// in both cases.
/// </summary>
/// <param name="Found">The coordinator's record before the last start; empty if there was none.</param>
/// <param name="Put">The record of the last start, whether or not it reached the coordinator; empty if the directory was never started.</param>
internal sealed record DirectoryStarts(NodeStarts Found, NodeStarts Put)
{
    /// <summary>Of a directory that was never started.</summary>
    public static DirectoryStarts None { get; } = new(new NodeStarts(), new NodeStarts());

    /// <summary>Whether the node was last started with another directory than this one.</summary>
    /// <param name="counted">The coordinator's record.</param>
    /// <remarks>
    /// A copy that was started and ended before the coordinator counted that start has a count as high as the original, which was started after it. So who
    /// counted is compared, too. A record with a lower count than the one found is older: the coordinator was restored from a backup.
    /// </remarks>
    public bool IsOldCopy(NodeStarts counted) => !counted.Equals(Put) && !counted.Equals(Found) && counted.Starts >= Found.Starts;

    /// <summary>The next start. Its number and its incarnation are greater than those of all earlier ones.</summary>
    /// <param name="counted">The coordinator's record.</param>
    /// <param name="process">Random, so that copies that are started at once differ.</param>
    public DirectoryStarts Next(NodeStarts counted, uint process)
    {
        var starts = Math.Max(Put.Starts, counted.Starts) + 1;
        return new DirectoryStarts(counted, new NodeStarts { Starts = starts, Incarnation = (starts << 32) | process });
    }

    /// <summary>Reads the file's content; null if it is not that of such a file.</summary>
    public static DirectoryStarts? TryParse(string text)
    {
        try
        {
            return text.Split('\n') is [var found, var put, ""] ? new DirectoryStarts(RecordText.Parse<NodeStarts>(found), RecordText.Parse<NodeStarts>(put))
                : null;
        }
        catch (CoordinatorRecordException)
        {
            return null;
        }
    }

    /// <summary>A start as people read it.</summary>
    public static string TextOf(NodeStarts start) => string.Create(CultureInfo.InvariantCulture, $"start {start.Starts} (incarnation {start.Incarnation:x16})");

    /// <summary>The file's content.</summary>
    public override string ToString() => $"{RecordText.Format(Found)}\n{RecordText.Format(Put)}\n";
}
