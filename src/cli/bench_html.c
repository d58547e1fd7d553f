/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of `cairn bench`: a plot of every round's ratio against its goal, and the table.
 * Threads: one. Memory: none.
 * Invariant: the page needs no other file, no network and no script; every text in it is escaped.
 */
#include <string.h>

#include "cli/bench.h"

enum {
	HTML_LEFT = 190,
	HTML_WIDTH = 560,
	HTML_ROW = 34
};
#define HTML_MOST 2.0 /* of ratio / goal; what is beyond stands at the edge */

static void html_text(FILE *file, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", file);
			break;
		case '>':
			fputs("&gt;", file);
			break;
		case '&':
			fputs("&amp;", file);
			break;
		case '"':
			fputs("&quot;", file);
			break;
		default:
			fputc(*text, file);
		}
}

static const char *html_color(int verdict)
{
	return verdict == BENCH_GOOD ? "#2a7f3f" : verdict == BENCH_MISSED ? "#b3261e" : "#8a6d00";
}

static double html_x(double ratio, double goal)
{
	double share = goal > 0 ? ratio / goal / HTML_MOST : 0;

	return HTML_LEFT + HTML_WIDTH * (share > 1 ? 1 : share < 0 ? 0 : share);
}

static void html_row(FILE *file, const struct bench_result *result, int y)
{
	struct bench_summary sum;
	char ratio[24];

	bench_summarize(result, &sum);
	double end = html_x(sum.ratio, result->figure->goal);
	fprintf(file, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", HTML_LEFT - 10, y + 16);
	html_text(file, result->figure->name);
	fprintf(file, "</text>\n<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"18\" fill=\"%s\" fill-opacity=\"0.55\"/>\n",
	        HTML_LEFT, y + 3, end - HTML_LEFT, html_color(sum.verdict));
	for (uint32_t i = 0; i < result->count; i++)
		if (result->limit[i] > 0)
			fprintf(file, "<circle cx=\"%.1f\" cy=\"%d\" r=\"3\"/>\n",
			        html_x(result->value[i] / result->limit[i], result->figure->goal), y + 12);
	fprintf(file, "<text x=\"%d\" y=\"%d\">%s %s</text>\n", HTML_LEFT + HTML_WIDTH + 10, y + 16,
	        bench_number(sum.ratio, ratio, sizeof ratio), bench_verdict_name(sum.verdict));
}

static void html_plot(FILE *file, const struct bench_result *results, size_t count)
{
	int rows = 0, goal = HTML_LEFT + (int)(HTML_WIDTH / HTML_MOST);

	for (size_t i = 0; i < count; i++)
		rows += results[i].wanted;
	fprintf(
		file,
		"<svg viewBox=\"0 0 %d %d\" width=\"100%%\" role=\"img\" aria-label=\"ratio of each figure to its goal\">\n",
		HTML_LEFT + HTML_WIDTH + 130, rows * HTML_ROW + 30);
	for (size_t i = 0, row = 0; i < count; i++)
		if (results[i].wanted)
			html_row(file, &results[i], (int)row++ * HTML_ROW);
	fprintf(file, "<line x1=\"%d\" y1=\"0\" x2=\"%d\" y2=\"%d\" stroke=\"currentColor\" stroke-dasharray=\"5 4\"/>\n",
	        goal, goal, rows * HTML_ROW);
	fprintf(file, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">goal</text>\n</svg>\n", goal, rows * HTML_ROW + 18);
}

static void html_table(FILE *file, const struct bench_result *results, size_t count)
{
	char value[24], limit[24], ratio[24], goal[24];

	fputs("<table>\n<tr><th>figure</th><th>value</th><th>limit</th><th>which is</th><th>ratio</th><th>goal</th>"
	      "<th>spread</th><th>verdict</th></tr>\n",
	      file);
	for (size_t i = 0; i < count; i++) {
		const struct bench_figure *figure = results[i].figure;
		struct bench_summary sum;

		if (!results[i].wanted)
			continue;
		bench_summarize(&results[i], &sum);
		fputs("<tr><td>", file);
		html_text(file, figure->name);
		fprintf(file, "</td><td>%s %s</td><td>%s %s</td><td>", bench_number(sum.value, value, sizeof value),
		        figure->unit, bench_number(sum.limit, limit, sizeof limit), figure->unit);
		html_text(file, *results[i].limit_name ? results[i].limit_name : figure->limit_name);
		fprintf(file, "</td><td>%s</td><td>%s %s</td><td>%.0f %%</td><td style=\"color:%s\">%s",
		        bench_number(sum.ratio, ratio, sizeof ratio), figure->below ? "&le;" : "&ge;",
		        bench_number(figure->goal, goal, sizeof goal), sum.spread * 100, html_color(sum.verdict),
		        bench_verdict_name(sum.verdict));
		if (*results[i].note) {
			fputs("; ", file);
			html_text(file, results[i].note);
		}
		fputs("</td></tr>\n", file);
	}
	fputs("</table>\n", file);
}

int bench_html(FILE *file, const struct bench_result *results, size_t count, const char *about)
{
	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>cairn bench</title>\n<style>\n"
	      "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\n"
	      "svg{font:13px system-ui,sans-serif;fill:currentColor}\n"
	      "table{border-collapse:collapse}td,th{text-align:left;padding:.25em .8em;border-bottom:1px solid #8888}\n"
	      "@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}}\n"
	      "</style>\n</head>\n<body>\n<h1>cairn bench</h1>\n<p>",
	      file);
	html_text(file, about);
	fputs("</p>\n<p>Each bar is the median ratio of a figure to its limit, drawn so that the goals of all stand in one "
	      "line; each dot is one round. Where the goal is &ldquo;at most&rdquo; (see the table), left of the line is "
	      "better.</p>\n",
	      file);
	html_plot(file, results, count);
	html_table(file, results, count);
	fputs("</body>\n</html>\n", file);
	return ferror(file) ? -1 : 0;
}
