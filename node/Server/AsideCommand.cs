using System.CommandLine;
using System.Globalization;
using KvCluster.Node.Hosting;
using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Inspection;

namespace KvCluster.Node;

/// <summary>
/// kv-node aside: lists and deletes copies of replicas that a node has set aside. It reads no settings, and the node may be running: it has no file of them
/// open (<see cref="AsideCopies"/>).
/// </summary>
internal static class AsideCommand
{
    private static readonly Argument<string> DataDirectory = new("DATA") { Description = "The node's data directory." };
    private static readonly Argument<string> Name =
        new("COPY") { Description = "The copy's name, as 'list' prints it: the shard, or the shard with '-later'." };
    private static readonly Option<bool> AcceptLoss = new("--accept-loss") { Description = "Do it. Without this, it is only said what is in the copy." };

    public static Command Create()
    {
        var list = new Command("list", "Lists the copies: which replica each is of, its newest record and its size. Changes nothing.") { DataDirectory };
        list.SetAction(arguments => AsUserOfTheNode(() => List(arguments)));
        var remove = new Command("remove", "Deletes a copy for its space, also while the node runs.") { DataDirectory, Name, AcceptLoss };
        remove.SetAction(arguments => AsUserOfTheNode(() => Remove(arguments)));
        return new Command("aside", "Lists and deletes copies of replicas that were damaged or outdated, which a node keeps for whoever wants to examine "
            + "them.") { list, remove };
    }

    private static int List(ParseResult arguments)
    {
        var copies = CopiesIn(arguments);
        var found = copies.List();
        foreach (var copy in found)
            Write(copy, CopyExtent.Read(LocalDisk.Instance, copy.Path));
        if (found.Count == 0)
            Console.WriteLine($"There is no copy in '{copies.Location}'.");
        return ExitCodes.Done;
    }

    private static int Remove(ParseResult arguments)
    {
        var copies = CopiesIn(arguments);
        var name = arguments.GetRequiredValue(Name);
        if (copies.List().FirstOrDefault(copy => copy.Name == name) is not { } found)
            throw new SettingsException([$"{Name.Name}: there is no copy '{name}' in '{copies.Location}'; nothing was changed."]);
        var extent = CopyExtent.Read(LocalDisk.Instance, found.Path);
        Write(found, extent);
        if (!arguments.GetValue(AcceptLoss))
        {
            Console.WriteLine(
                $"Nothing was changed. If `kv status` shows a leader and all replicas of shard {found.Shard}, nobody needs the copy: "
                + $"repeat this with {AcceptLoss.Name}. "
                + "If it does not, the copy may have data that nobody else has: keep it, or move it to another disk.");
            return ExitCodes.Done;
        }
        if (!copies.TryRelease(found, extent.Control?.ReplicaId ?? ReplicaId.None))
        {
            Console.Error.WriteLine($"kv-node: '{found.Path}' was replaced or deleted meanwhile; nothing was changed. Look again.");
            return ExitCodes.Unavailable;
        }
        Console.WriteLine($"Deleted '{found.Path}'.");
        return ExitCodes.Done;
    }

    private static AsideCopies CopiesIn(ParseResult arguments)
    {
        var data = Path.GetFullPath(arguments.GetRequiredValue(DataDirectory));
        return NodeDirectory.IsOne(data)
            ? new AsideCopies(LocalDisk.Instance, NodeDirectory.AsideIn(data))
            : throw new SettingsException([$"{DataDirectory.Name}: '{data}' is not the data directory of a node; nothing was changed."]);
    }

    private static void Write(AsideCopy copy, CopyExtent extent)
    {
        var newest = extent.Newest is { } etag ? $"its newest record is {EtagText.Of(etag)}" : $"its newest record cannot be determined: {extent.WhyUnknown}";
        Console.WriteLine(string.Create(CultureInfo.InvariantCulture, $"{copy.Name,-12} {AsideCopies.BytesOf(copy) / 1e6:N1} MB, replica {extent.Replica} of "
            + $"shard {copy.Shard}; {newest}"));
    }

    private static int AsUserOfTheNode(Func<int> run)
    {
        try
        {
            return run();
        }
        catch (UnauthorizedAccessException failure)
        {
            throw new IOException($"{failure.Message} Run this as the user of the node.", failure);
        }
    }
}
