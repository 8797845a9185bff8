using System.CommandLine;
using System.Text;
using KvCluster.Node.Hosting;
using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Inspection;

namespace KvCluster.Node;

/// <summary>kv-node storage: looks at the directory of a replica whose node is stopped, and recovers what can be recovered. It reads no settings.</summary>
internal static class StorageCommand
{
    private static readonly Argument<string> ReplicaDirectory =
        new("DIR") { Description = "The replica's directory: shards/N in the data directory of a node that is stopped." };
    private static readonly Option<bool> Json = new("--json") { Description = "Print one JSON object." };
    private static readonly Option<string?> Keys =
        new("--keys") { Description = "List keys, and sets, that begin with this text; '' lists all.", HelpName = "PREFIX" };
    private static readonly Option<int> Limit =
        new("--limit") { Description = "List at most this many keys, and as many sets.", DefaultValueFactory = _ => 100, HelpName = "N" };
    private static readonly Option<int> Records =
        new("--records") { Description = "List this many of the newest journal records.", DefaultValueFactory = _ => 20, HelpName = "N" };
    private static readonly Option<bool> AcceptLoss = new("--accept-loss") { Description = "Do it. Without this, it is only said what would be done." };
    private static readonly Option<bool> LoneCopy =
        new("--lone-copy") { Description = "DIR was copied out of its node's data directory, so that no node can be using it." };
    private static readonly Option<string?> ClusterHash = new("--cluster-hash") { Description = "The cluster in hex, if the control file is lost; "
        + "'dump' of another replica of the cluster prints it.", HelpName = "HEX" };

    public static Command Create()
    {
        var probe = new Command(
            "probe", "Measures the disk of a directory: durable writes, writes in flight, and what the file system supports.") { ReplicaDirectory };
        probe.SetAction(arguments => WithLock(arguments, static (directory, _) => Probe(directory)));
        var check = new Command("check", "Reads everything, and says what is damaged and what is lost as a result. Changes nothing. "
            + "Exits with 65 if anything is damaged.") { ReplicaDirectory, Json };
        check.SetAction(arguments => WithLock(arguments, Check));
        var dump = new Command("dump", "Prints the control file, meta pages, trees, segments and records, and keys on request. "
            + "Changes nothing.") { ReplicaDirectory, Keys, Limit, Records };
        dump.SetAction(arguments => WithLock(arguments, Dump));
        var recover = new Command("recover", "Builds the replica again from what can be read of it. For a shard that has no other replica: "
            + "what cannot be read is lost.") { ReplicaDirectory, AcceptLoss, LoneCopy, ClusterHash };
        recover.SetAction(arguments => WithLock(arguments, Recover, needsLock: arguments.GetValue(AcceptLoss) && !arguments.GetValue(LoneCopy)));
        return new Command("storage", "Looks at a stopped node's replicas, and recovers them.") { probe, check, dump, recover };
    }

    /// <summary>Runs a tool while no node can use the directory, as far as the lock of its data directory can be found.</summary>
    /// <param name="arguments">What was given.</param>
    /// <param name="run">The tool.</param>
    /// <param name="needsLock">Whether the tool is refused without a lock, because a node that uses the directory would lose by it.</param>
    private static int WithLock(ParseResult arguments, Func<string, ParseResult, int> run, bool needsLock = false)
    {
        var directory = Path.TrimEndingDirectorySeparator(Path.GetFullPath(arguments.GetRequiredValue(ReplicaDirectory)));
        IReadOnlyList<DirectoryLock> locks = [];
        try
        {
            locks = ReplicaLocks.Take(directory);
            if (needsLock && locks.Count == 0 && Directory.Exists(directory))
            {
                Console.Error.WriteLine(
                    $"kv-node: There is no data directory above '{directory}', so it is not known whether a node uses it; nothing was changed. "
                        + $"Give its path in the node's data directory, or {LoneCopy.Name} if it was copied out of one.");
                return ExitCodes.Unavailable;
            }
            TellOfShared(directory);
            return run(directory, arguments);
        }
        catch (UnauthorizedAccessException failure)
        {
            throw new IOException($"{failure.Message} Run this as the user of the node; nothing was changed.", failure);
        }
        finally
        {
            foreach (var held in locks)
                held.Dispose();
        }
    }

    // What these commands read is what the node would find after it has put everything back, which it does first when it starts.
    private static void TellOfShared(string directory)
    {
        if (DataDirectoryOf(directory) is { } data && NodeDirectory.HasShared(LocalDisk.Instance, data))
            Console.Error.WriteLine(
                $"kv-node: The node of '{data}' did not stop cleanly. If the machine did not either, the last records of its replicas may be only in "
                    + $"'{data}/shared'. They are not looked at here; 'recover --accept-loss' puts them back first, as a start of the node does.");
    }

    /// <summary>Puts back what the shared journal of the node has, for all its replicas. False if it has none.</summary>
    private static bool TrySettleShared(string replica)
    {
        if (DataDirectoryOf(replica) is not { } data || !NodeDirectory.HasShared(LocalDisk.Instance, data))
            return false;
        var put = NodeDirectory.SettleShared(LocalDisk.Instance, data);
        Console.WriteLine($"Put back {put.Writes} writes of the last process from '{data}/shared' into the replicas' journals.");
        foreach (var lost in put.Losses)
            Console.WriteLine($"The shared journal is damaged: records of '{lost}' that were durable may be missing.");
        return true;
    }

    // By the path that was given and by that without links, as ReplicaLocks takes the locks.
    private static string? DataDirectoryOf(string replica) =>
        new[] { replica, ReplicaLocks.RealPath(replica) }.Select(static path => Path.GetDirectoryName(Path.GetDirectoryName(path)))
            .FirstOrDefault(static data => data is not null && NodeDirectory.IsOne(data));

    private static int Probe(string directory)
    {
        StorageText.Write(DeviceProbe.Run(LocalDisk.Instance, TimeProvider.System, directory), Console.Out);
        return ExitCodes.Done;
    }

    private static int Check(string directory, ParseResult arguments)
    {
        var report = StoreCheck.Run(LocalDisk.Instance, directory);
        if (arguments.GetValue(Json))
            StorageText.WriteJson(report, Console.Out);
        else
            StorageText.Write(report, Console.Out);
        return report.IsDamaged ? ExitCodes.Damaged : ExitCodes.Done;
    }

    private static int Dump(string directory, ParseResult arguments)
    {
        var request = new DumpRequest(
            arguments.GetValue(Keys) is { } prefix ? Encoding.UTF8.GetBytes(prefix) : null, arguments.GetValue(Limit), arguments.GetValue(Records));
        using var replica = StoppedReplica.Open(LocalDisk.Instance, directory);
        new StoreDump(replica, Console.Out).Write(request);
        return ExitCodes.Done;
    }

    private static int Recover(string directory, ParseResult arguments)
    {
        var changed = arguments.GetValue(AcceptLoss) && TrySettleShared(directory) ? "nothing else" : "nothing";
        // If the path is a link, the directory behind it has to be renamed and not the link.
        directory = ReplicaLocks.RealPath(directory);
        ulong? clusterHash = null;
        if (arguments.GetValue(ClusterHash) is { } text)
        {
            clusterHash =
                ulong.TryParse(text, System.Globalization.NumberStyles.AllowHexSpecifier, System.Globalization.CultureInfo.InvariantCulture, out var hash)
                    ? hash
                    : throw new SettingsException([$"{ClusterHash.Name}: '{text}' is not a number in hex."]);
        }
        using var recovery = StoreRecovery.Begin(LocalDisk.Instance, directory, clusterHash);
        StorageText.Write(recovery.Report, Console.Out);
        if (!recovery.IsNeeded)
        {
            Console.WriteLine($"Nothing to recover, and {changed} was changed.");
            return ExitCodes.Done;
        }
        if (recovery.WhyNot is { } why)
        {
            Console.Error.WriteLine($"kv-node: '{directory}' cannot be recovered: {why}; {changed} was changed.");
            return ExitCodes.Damaged;
        }
        foreach (var step in recovery.Plan())
            Console.WriteLine($"plan     {step}");
        if (!arguments.GetValue(AcceptLoss))
        {
            Console.WriteLine("Nothing was changed. If the shard has other replicas, do not recover: the node rebuilds the replica from them. "
                + "If it has none, repeat this with --accept-loss.");
            return ExitCodes.Done;
        }
        var kept = recovery.Run();
        if (recovery.LeftOut > 0)
            Console.WriteLine($"Left out {recovery.LeftOut} entries that cannot be decoded; the lines above name them.");
        Console.WriteLine($"Recovered up to {EtagText.Of(recovery.Last.Etag)}. What was there before is in '{kept}'.");
        return ExitCodes.Done;
    }
}
