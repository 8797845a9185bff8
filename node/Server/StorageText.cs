using System.Globalization;
using System.Text;
using System.Text.Json;
using KvCluster.Storage.Inspection;
using KvCluster.Storage.Recovery;

namespace KvCluster.Node;

/// <summary>What the commands of kv-node storage print.</summary>
internal static class StorageText
{
    /// <summary>Prints what a device does, and what the engine chooses because of it.</summary>
    public static void Write(DeviceReport report, TextWriter output)
    {
        Line($"direct I/O       {YesNo(report.IsDirect)}");
        if (report.Direct is { } direct)
            WriteTimes("direct, durable", direct);
        WriteTimes("write and sync", report.Buffered);
        Line($"one in flight    {report.OnePerSecond:0} writes/s");
        if (report.TwoPerSecond is { } two)
            Line($"two in flight    {two:0} writes/s");
        if (report.FourPerSecond is { } four)
            Line($"four in flight   {four:0} writes/s");
        Line($"1 MiB            {report.LargeWrite.TotalMicroseconds:0} us");
        Line($"new name         {report.DirectorySync.TotalMicroseconds:0} us to create a file and sync its directory");
        Line($"allocate         {YesNo(report.Features.Allocates)}; punch holes {YesNo(report.Features.PunchesHoles)}; "
            + $"share blocks (reflink) {YesNo(report.Features.Reflinks)}");
        var writes = report.IsDirect
            ? $"with direct I/O and up to {(DeviceProbe.JournalWrites(report.Direct!.Value.Zeroed) == 2 ? "two" : "four")} writes in flight"
            : "through the page cache with one write in flight";
        var segments = DeviceProbe.FillingPays(report.Direct ?? report.Buffered) ? "zero-filled" : "allocated";
        var compression = !DeviceProbe.CompressionPays(report.LargeWrite) ? "Records would not be compressed, because the device is fast."
            : "Large records would be compressed.";
        Line($"By this measurement, an engine on this disk would write its journal {writes}, into {segments} or recycled segments. {compression}");
        Line($"What a node uses is not recorded here: at each start it measures again, with fewer writes, and its log says what it has chosen (\"As measured "
            + $"on this disk\").");

        void WriteTimes(string name, WriteTimes times) => Line(
            $"{name,-16} {times.Allocated.TotalMicroseconds:0} us into allocated space, {times.Zeroed.TotalMicroseconds:0} us into zero-filled, "
            + $"{times.Recycled.TotalMicroseconds:0} us into written space");

        void Line(string text) => output.WriteLine(text);

        static string YesNo(bool value) => value ? "yes" : "no";
    }

    /// <summary>Prints the result of a check.</summary>
    public static void Write(CheckReport report, TextWriter output)
    {
        foreach (var finding in report.Findings)
        {
            output.WriteLine($"{(finding.IsDamage ? "damage " : "note   ")}  "
                + $"{finding.File}{(finding.Offset is { } offset ? string.Create(CultureInfo.InvariantCulture, $" at offset {offset}") : "")}: {finding.What}");
            output.WriteLine($"         lost: {finding.Lost}");
        }
        var keys = string.Join(", ", report.Keys.Select(static tree => string.Create(CultureInfo.InvariantCulture, $"{TreeText.Of(tree.Key)} {tree.Value}")));
        output.WriteLine(string.Create(
            CultureInfo.InvariantCulture, $"read     {report.PagesRead} pages, {report.RecordsRead} records; keys: {(keys.Length == 0 ? "none" : keys)}"));
        output.WriteLine($"node     {Decision(report)}");
        output.WriteLine(report.IsDamaged ? $"The replica {report.ReplicaId:x16} of shard {report.Shard} is damaged."
            : $"The replica {report.ReplicaId:x16} of shard {report.Shard} is intact.");
    }

    /// <summary>Prints the result of a check as one JSON object.</summary>
    public static void WriteJson(CheckReport report, TextWriter output)
    {
        using var bytes = new MemoryStream();
        using (var json = new Utf8JsonWriter(bytes))
        {
            json.WriteStartObject();
            json.WriteString("directory", report.Directory);
            json.WriteString("replica", report.ReplicaId.ToString("x16", CultureInfo.InvariantCulture));
            json.WriteNumber("shard", report.Shard.Value);
            json.WriteBoolean("damaged", report.IsDamaged);
            json.WriteString("row", report.Row.Name);
            json.WriteString("decision", report.Row.Decision.ToString());
            json.WriteNumber("pages", report.PagesRead);
            json.WriteNumber("records", report.RecordsRead);
            json.WriteStartObject("keys");
            foreach (var (tree, count) in report.Keys)
                json.WriteNumber(TreeText.Of(tree), count);
            json.WriteEndObject();
            json.WriteStartArray("findings");
            foreach (var finding in report.Findings)
            {
                json.WriteStartObject();
                json.WriteBoolean("damage", finding.IsDamage);
                json.WriteString("file", finding.File);
                if (finding.Offset is { } offset)
                    json.WriteNumber("offset", offset);
                json.WriteString("what", finding.What);
                json.WriteString("lost", finding.Lost);
                json.WriteEndObject();
            }
            json.WriteEndArray();
            json.WriteEndObject();
        }
        output.WriteLine(Encoding.UTF8.GetString(bytes.GetBuffer(), 0, (int)bytes.Length));
    }

    private static string Decision(CheckReport report) => (report.Row.Decision, report.Row.Name) switch
    {
        (RecoveryDecision.Open, var row) => $"opens it ({row}){(report.DamagedTrees.Count > 0 ? ", and stops the replica when it reads what is damaged" : "")}",
        (RecoveryDecision.RecoverFromPeers, var row) => $"opens it only if the shard has other replicas, and fetches from them what is missing ({row})",
        var (_, row) => $"does not open it; if the shard has other replicas, the replica is rebuilt from them ({row})",
    };
}
