using System.Globalization;
using System.Text.Json;
using Spectre.Console;

namespace KvCluster.Benchmarks;

/// <summary>The results of a run: a table for people, a JSON array for programs. Called once, at the end, by Program.</summary>
internal static class BenchmarkReport
{
    private static readonly JsonSerializerOptions Json = new() { PropertyNamingPolicy = JsonNamingPolicy.CamelCase, WriteIndented = true };

    public static void Print(IAnsiConsole console, IReadOnlyList<BenchmarkRow> rows)
    {
        // A pipe or a log has no width, so rows are not wrapped there.
        if (!console.Profile.Out.IsTerminal)
            console.Profile.Width = 140;
        var table = new Table().Border(TableBorder.Ascii2).AddColumns("workload", "system", "unit");
        foreach (var number in (string[])["median", "min", "max", "runs"])
            table.AddColumn(new TableColumn(number).RightAligned());
        foreach (var row in rows)
            table.AddRow(Markup.Escape(row.Workload), Markup.Escape(row.System), Markup.Escape(row.Unit),
                Format(row.Median), Format(row.Min), Format(row.Max), row.Runs.ToString(CultureInfo.InvariantCulture));
        console.Write(table);
    }

    /// <summary>Writes the array <c>{suite, workload, system, unit, median, min, max, runs}</c>. An existing file is replaced as a whole.</summary>
    public static async Task WriteJsonAsync(string path, IReadOnlyList<BenchmarkRow> rows)
    {
        await using var file = File.Create(path);
        await JsonSerializer.SerializeAsync(file, rows, Json);
    }

    // Three significant digits, because a run on a shared machine is no more precise.
    private static string Format(double value) => value switch
    {
        >= 100 => value.ToString("N0", CultureInfo.InvariantCulture),
        >= 10 => value.ToString("N1", CultureInfo.InvariantCulture),
        _ => value.ToString("N2", CultureInfo.InvariantCulture),
    };
}
