using System.Globalization;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Control;

/// <summary>
/// The names in a replica's directory (FORMAT.md, "Directory"). The state, that is data file and journal, is in a numbered directory of its own, so that
/// an installed snapshot replaces it with one rename. The promises are outside of it.
/// </summary>
internal sealed class StoreLayout(string directory)
{
    private const string StatePrefix = "state-";

    /// <summary>The replica's directory.</summary>
    public string Directory { get; } = directory;

    /// <summary>Promises and identity.</summary>
    public string Control => Path.Combine(Directory, "control");

    /// <summary>Space reserved for a full disk.</summary>
    public string Reserve => Path.Combine(Directory, "reserve");

    /// <summary>If this file exists, the directory must not be opened. It contains the reason.</summary>
    public string Quarantined => Path.Combine(Directory, "quarantined");

    /// <summary>Exists while a process has the directory open; left behind by a process that did not close it.</summary>
    public string Running => Path.Combine(Directory, "running");

    /// <summary>Truncated tails.</summary>
    public string Aside => Path.Combine(Directory, "aside");

    /// <summary>A snapshot that is being received; of no value until it is renamed to a state directory.</summary>
    public string Incoming => Path.Combine(Directory, "incoming");

    /// <summary>A directory for a store that is being created; renamed to <see cref="Directory"/> when it is complete.</summary>
    public string Creating => Directory + ".creating";

    /// <summary>The state directory with a number.</summary>
    public string State(uint number) => Path.Combine(Directory, StatePrefix + number.ToString("x8", CultureInfo.InvariantCulture));

    /// <summary>The data file of a state directory.</summary>
    public static string Data(string state) => Path.Combine(state, "data");

    /// <summary>The journal of a state directory.</summary>
    public static string Journal(string state) => Path.Combine(state, "journal");

    /// <summary>The numbers of the existing state directories in ascending order; the last one is current.</summary>
    public List<uint> States(IFileSystem files)
    {
        var numbers = new List<uint>();
        foreach (var name in files.List(Directory))
        {
            if (name.Length == StatePrefix.Length + 8 && name.StartsWith(StatePrefix, StringComparison.Ordinal)
                && uint.TryParse(name.AsSpan(StatePrefix.Length), NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture, out var number))
                numbers.Add(number);
        }
        numbers.Sort();
        return numbers;
    }
}
